// The parts of Observable Plot and of d3 that perfdoctor/report/html/assets/draw.js uses.
export {plot, axisY, barX, dot, line, link, ruleX, text} from "@observablehq/plot";
export {select} from "d3-selection";
export {zoom, zoomIdentity} from "d3-zoom";
