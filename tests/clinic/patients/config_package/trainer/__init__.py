"""Forecasts of how many bicycles are taken at a place in the next hour."""
