"""The console on a terminal: one status line that fits, whatever happens to the window."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time

from harness import OK, SLOW, STOPPED, Case, main

CSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A pseudo-terminal with a program on it; keeps (moment's width, text) of everything that was written."""

    def __init__(self, case, *args, columns=80, env=None, tostop=False):
        self.case = case
        self.master, slave = pty.openpty()
        case.addCleanup(os.close, self.master)
        self.resize(columns)
        if tostop:
            mode = termios.tcgetattr(slave)
            mode[3] |= termios.TOSTOP
            termios.tcsetattr(slave, termios.TCSANOW, mode)
        self.chunks = []

        def own_terminal():
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

        self.process = case.start(case.config(), f"run.dir={case.path('run')}", *args, env={"TERM": "xterm", **(env or {})},
                                  stdin=slave, stdout=slave, stderr=slave, preexec_fn=own_terminal)
        os.close(slave)

    def resize(self, columns):
        self.columns = columns
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def press(self, key):
        os.write(self.master, key)

    def read(self, seconds=0.05):
        """Takes what there is within the time; False at the end of the program's output."""
        if not select.select([self.master], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self.master, 65536)
        except OSError:
            return False
        self.chunks.append((self.columns, data.decode(errors="replace")))
        return bool(data)

    def until(self, condition, what, seconds=30):
        deadline = time.monotonic() + seconds * SLOW
        while not condition():
            going = self.read()
            if condition():
                return
            if not going or time.monotonic() > deadline:
                self.case.fail(f"no {what} on the terminal:\n{self.text!r}")

    def finish(self, seconds=60):
        deadline = time.monotonic() + seconds * SLOW
        while self.read():
            if time.monotonic() > deadline:
                processes = self.case.processes()
                self.case.end_all()
                self.case.fail(f"still running, with {processes}:\n{self.text!r}")
        r = self.process.wait(10)
        r.err = self.text
        return r

    @property
    def text(self):
        return "".join(t for _, t in self.chunks)

    def status_lines(self, since=0):
        """(width, line) of each drawing of the status line."""
        found = []
        for columns, text in self.chunks[since:]:
            for part in re.split(r"[\r\n]", text):
                part = CSI.sub("", part)
                if re.match(r"(eval  |saving  )?epoch \d+/", part):
                    found.append((columns, part))
        return found


LONG = ("train.epochs=400", "train.eval_every=20", "checkpoint.every_epochs=100", "log.every=20")


class Live(Case):
    def test_status_line_and_summary(self):
        t = Terminal(self, "train.epochs=60", "train.eval_every=20", "checkpoint.every_epochs=30", "log.every=10")
        r = t.finish()
        self.assert_code(r, OK)
        lines = t.status_lines()
        self.assertGreater(len(lines), 2, repr(t.text))
        for columns, line in lines:
            self.assertLess(len(line), columns, line)
        whole = re.compile(r"epoch \d+/60  step \d+/1260  \d+%  [\d.]+[kM]? img/s  loss [\d.e-]+  eta [\d.]+s$")
        self.assertTrue(any(whole.match(line) for _, line in lines), lines)
        plain = CSI.sub("", t.text)
        for word in ("2 ranks", "done", self.digest()[:8], "top1"):
            self.assertIn(word, plain)
        after = plain[plain.rindex("top1"):]
        self.assertNotRegex(after, r"epoch \d+/60  step", "a status line stands below the summary")
        self.assertEqual(self.metrics(kind="end")[0]["step"], 1260)

    def test_resize(self):
        t = Terminal(self, *LONG)
        for columns in (80, 40, 20, 12, 200):
            t.resize(columns)
            # What was on its way when the window changed may still have the old width.
            t.until(lambda n=len(t.chunks): len(t.status_lines(n)) >= 2, f"status line at width {columns}")
            settled = len(t.chunks)
            t.until(lambda n=settled: len(t.status_lines(n)) >= 2, f"status line at width {columns}")
            for width, line in t.status_lines(settled):
                self.assertLess(len(line), width, line)
        t.press(b"\x03")
        r = t.finish()
        self.assert_code(r, STOPPED)

    def test_control_c(self):
        t = Terminal(self, *LONG)
        t.until(lambda: len(t.status_lines()) >= 2, "status line")
        t.press(b"\x03")
        r = t.finish()
        self.assert_code(r, STOPPED)
        self.assertIn("run the same command again", CSI.sub("", t.text))
        self.assertEqual(self.marked(), {})
        self.assertEqual(self.metrics(kind="end")[-1]["status"], "stopped by a signal")

    def test_control_c_twice(self):
        t = Terminal(self, *LONG, env={"CTRAIN_FAILPOINT": "step:30@1=stop"})
        self.until_stopped(1, t.process)
        t.press(b"\x03")
        t.until(lambda: "again to end at once" in t.text, "message")
        t.press(b"\x03")
        r = t.finish()
        self.assertEqual(r.code, -signal.SIGINT)
        self.assertEqual(self.marked(), {})

    def test_terminal_goes_away(self):
        """The window is closed or the ssh connection lost: SIGHUP; the run saves and ends."""
        t = Terminal(self, *LONG)
        t.until(lambda: len(t.status_lines()) >= 2, "status line")
        spare = os.open(os.devnull, os.O_RDONLY)
        os.dup2(spare, t.master)
        os.close(spare)
        r = t.process.wait()
        self.assertIn(r.code, (STOPPED, -signal.SIGHUP), r.describe())
        self.until(lambda: not self.marked(), "everything was gone", None, 5)
        self.assert_checkpoints_whole()

    def test_background_output_is_not_stopped(self):
        """`stty tostop`: ranks are in process groups of their own and write all the same."""
        t = Terminal(self, "train.epochs=3", tostop=True)
        self.assert_code(t.finish(30), OK)

    def test_dumb_terminal_and_no_colour(self):
        t = Terminal(self, "train.max_steps=5", env={"TERM": "dumb"})
        self.assert_code(t.finish(), OK)
        self.assertNotIn("\x1b", t.text)
        self.assertNotIn("\r", t.text.replace("\r\n", ""))
        t = Terminal(self, "train.max_steps=8", env={"NO_COLOR": "1"})
        self.assert_code(t.finish(), OK)
        self.assertNotRegex(t.text, r"\x1b\[[0-9;]*m")

    def test_long_names_do_not_break_the_line(self):
        t = Terminal(self, "train.max_steps=30", "train.epochs=0", "run.name=" + "x" * 150, columns=30)
        self.assert_code(t.finish(), OK)
        for columns, line in t.status_lines():
            self.assertLess(len(line), columns, line)

    def test_plain_when_not_a_terminal(self):
        r = self.train(env={"TERM": "xterm"})
        self.assertNotIn("\x1b", r.out + r.err)
        self.assertNotIn("\r", r.out + r.err)
        self.assertRegex(r.out + r.err, r"epoch 1  step 1  loss ")

    def test_forced_live(self):
        r = self.train("log.console=live", "train.epochs=20", env={"TERM": "xterm"})
        self.assertIn("\r", r.err)


if __name__ == "__main__":
    main()
