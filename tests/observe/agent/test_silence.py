"""What is printed while we trace functions again is ours; what other threads print is not."""

import logging
import sys
import threading

import pytest

from perfdoctor.observe.agent.silence import Muted, silent


def speak(who: str) -> None:
    print(f"{who} prints")
    print(f"{who} warns", file=sys.stderr)
    logging.getLogger("mine").error("%s logs", who)


def test_one_thread_is_quiet_and_the_others_go_on(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with silent():
        speak("the tracer")
        other = threading.Thread(target=speak, args=("the loader",))
        other.start()
        other.join()
    said = capsys.readouterr()
    assert said.out == "the loader prints\n" and said.err == "the loader warns\n"
    assert caplog.messages == ["the loader logs"]


def test_afterwards_all_is_as_it_was(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    before = sys.stdout, sys.stderr, logging.Logger.handle
    with pytest.raises(ZeroDivisionError), silent():
        raise ZeroDivisionError
    assert (sys.stdout, sys.stderr, logging.Logger.handle) == before
    speak("the program")
    assert capsys.readouterr().out == "the program prints\n"
    assert caplog.messages == ["the program logs"]


def test_a_stream_keeps_what_it_can_do() -> None:
    with silent():
        assert sys.stdout.writable() and sys.stdout.write("four") == 4
        sys.stdout.flush()


def test_silence_is_of_one_thread(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    def other() -> None:
        print("other")
        print("other", file=sys.stderr)
        logging.getLogger("theirs").warning("other")

    with silent():
        print("mine")
        logging.getLogger("theirs").warning("mine")
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    print("again")
    output = capsys.readouterr()
    assert (output.out, output.err) == ("other\nagain\n", "other\n")
    assert [record.message for record in caplog.records] == ["other"]


def test_silence_ends_with_an_error() -> None:
    before = sys.stdout, sys.stderr, logging.Logger.handle
    with pytest.raises(ZeroDivisionError), silent():
        raise ZeroDivisionError
    assert (sys.stdout, sys.stderr, logging.Logger.handle) == before


def test_a_muted_stream_is_the_stream_otherwise() -> None:
    stream = Muted(sys.__stdout__, threading.get_ident())
    assert stream.write("nothing of this") == len("nothing of this")
    assert sys.__stdout__ is not None
    assert stream.fileno() == sys.__stdout__.fileno()
