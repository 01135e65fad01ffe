"""The console on a terminal: one status line that fits, whatever happens to the window."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import socket
import struct
import termios
import time

from harness import COMM, DATA, NUMERIC, OK, SLOW, STOPPED, Case, main, pause, read_text, state_of

CSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A pseudo-terminal with a program on it; keeps (moment's width, text) of everything that was written."""

    def __init__(self, case, *args, columns=80, env=None, tostop=False, prefix=(), command=None):
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

        command = command or (case.config(), f"run.dir={case.path('run')}")
        self.process = case.start(*command, *args, env={"TERM": "xterm", "LC_ALL": "C", **(env or {})},
                                  stdin=slave, stdout=slave, stderr=slave, preexec_fn=own_terminal, prefix=prefix)
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

    def screen(self):
        """The lines that a terminal of a constant width shows in the end, including those that have been scrolled off."""
        rows, row, column = [""], 0, 0
        for part in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|.", self.text, re.S):
            line = rows[row]
            if part == "\r":
                column = 0
            elif part == "\n" or (part[0] != "\x1b" and column == self.columns):
                row, column = row + 1, column if part == "\n" else 0
                rows += [""] * (row + 1 - len(rows))
            elif part == "\x1b[A":
                row = max(row - 1, 0)
            elif part in ("\x1b[J", "\x1b[K"):
                rows[row] = line[:column]
                if part == "\x1b[J":
                    del rows[row + 1:]
            if part[0] not in "\r\n\x1b":
                rows[row] = rows[row].ljust(column)[:column] + part + rows[row][column + 1:]
                column += 1
        return rows

    def status_lines(self, since=0):
        """(width, line) of each drawing of the first or the second live line."""
        found = []
        for columns, text in self.chunks[since:]:
            for part in re.split(r"[\r\n]", text):
                part = re.sub(r"\x1b(\[[\d;?]*)?$", "", CSI.sub("", part))  # a chunk may end within an escape sequence
                if re.match(r"(eval  |saving  )?epoch \d+/|loss ", part):
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
        for whole in (r"epoch \d+/60  [#.]+  \d+%  step \d+/1260  [\d.]+[kM]? img/s  eta [\d.]+s$",
                      r"loss [\d.e-]+  [_.~=+*#-]+  (best top1 [\d.]+  )?(compute|wait|data|other) \d+%"):
            self.assertTrue(any(re.match(whole, line) for _, line in lines), lines)
        plain = CSI.sub("", t.text)
        for word in ("2 ranks", "done", self.digest()[:8], "top1"):
            self.assertIn(word, plain)
        after = plain[plain.rindex("best top1"):]
        self.assertNotRegex(after, r"epoch \d+/60  ", "a status line stands below the summary")
        self.assertEqual(self.metrics(kind="end")[0]["step"], 1260)

    def test_epoch_lines_fit(self):
        """No line is longer than the terminal is wide, so that nothing is broken in the middle of a word, except for a single word."""
        t = Terminal(self, "train.epochs=3", columns=50, env={"LC_ALL": "C.UTF-8"})
        self.assert_code(t.finish(), OK)
        plain = CSI.sub("", t.text)
        for line in re.split(r"[\r\n]+", plain):
            self.assertTrue(len(line) <= 50 or len(line.split()) <= 2, line)
        for epoch in (1, 2, 3):
            self.assertRegex(plain, rf"[\r\n]epoch {epoch}  loss [\d.]+  (evaluation loss [\d.]+  )?top1 0\.\d{{4}}( best)?")
        self.assertRegex(plain, r"epoch 1  .*top1 0\.\d{4} best")
        self.assertRegex(t.text, "[\u2581-\u2588]{2}")
        # The live lines are gone, and every other line is there once.
        screen = t.screen()
        self.assertEqual([line for line in screen if re.match(r"(eval  |saving  )?epoch \d+/|loss ", line)], [], screen)
        self.assertEqual([line[:7] for line in screen if re.match(r"epoch \d+  loss", line)], ["epoch 1", "epoch 2", "epoch 3"], screen)
        self.assertTrue(all(len(line) <= 50 for line in screen))
        self.assertRegex(plain, r"\n  bound by ")

    def last_lines_fit(self, lines, n):
        return len(lines) >= n and all(len(line) < width for width, line in lines[-n:])

    def test_resize(self):
        t = Terminal(self, *LONG)
        for columns in (80, 40, 20, 12, 200):
            t.resize(columns)
            # Lines that were on their way when the window changed still have the old width.
            start = len(t.chunks)
            t.until(lambda n=start: self.last_lines_fit(t.status_lines(n), 3), f"status line that fits into {columns} columns")
        t.press(b"\x03")
        r = t.finish()
        self.assert_code(r, STOPPED)

    def test_control_c(self):
        t = Terminal(self, *LONG)
        t.until(lambda: len(t.status_lines()) >= 2, "status line")
        t.press(b"\x03")
        r = t.finish()
        self.assert_code(r, STOPPED)
        plain = CSI.sub("", t.text)
        self.assertIn("run the same command again", plain)
        # The user has asked for it.
        self.assertRegex(plain, r"[\r\n]ctrain: stopped by a signal at step \d+; the checkpoint is saved")
        self.assertNotIn("error", plain)
        self.assertEqual(self.marked(), {})
        self.assertEqual(self.metrics(kind="end")[-1]["status"], "stopped by a signal")

    def test_control_z(self):
        """From a shell, Ctrl-Z stops the launcher and all ranks, fg continues them, and no deadline passes in between."""
        sets = ("train.epochs=8",)
        shell = ("bash", "--norc", "-ic", '"$0" "$@"; echo SUSPENDED; read -r go; fg; exit $?')
        # Rank 1 is in a step when it happens, so that rank 0 waits for it.
        t = Terminal(self, *sets, "dist.timeout=3s", prefix=shell, env={"CTRAIN_FAILPOINT": "step:30@1=stop"})
        rank = self.until_stopped(1, t.process)
        t.press(b"\x1a")
        t.until(lambda: "SUSPENDED" in t.text, "prompt of the shell")
        ours = {pid: what for pid, what in self.processes().items() if pid != t.process.pid}
        self.assertEqual(sorted(ours.values()), ["launcher", "rank 0", "rank 1"])
        self.until(lambda: all(state_of(pid) == "T" for pid in ours), f"all of {ours} were stopped")
        time.sleep(5)  # not to wait for something: the pause is longer than every deadline
        self.assertEqual({state_of(pid) for pid in ours}, {"T"})
        self.assertIn(rank, ours)
        t.press(b"go\n")
        r = t.finish()
        self.assert_code(r, OK)
        self.assertNotRegex(CSI.sub("", t.text), "timed out|lost|error|waited")
        self.assert_equals_reference(*sets)

    def test_control_z_on_one_of_two_nodes(self):
        """The node that goes on waits for the other one, for up to dist.timeout, and neither is given up."""
        nodes = ("--nodes", 2, "--master-addr", "127.0.0.1", "--master-port", self.free_port())
        sets = ("train.epochs=8", "launch.procs=1", "dist.timeout=60", "dist.open_network=true", *nodes)
        shell = ("bash", "--norc", "-ic", '"$0" "$@"; echo SUSPENDED; read -r go; fg; exit $?')
        other = self.start_training(*sets, "--node-rank", 0)
        t = Terminal(self, *sets, "--node-rank", 1, prefix=shell, env={"CTRAIN_FAILPOINT": "step:30@1=stop"})
        self.until_stopped(1, t.process)
        t.press(b"\x1a")
        t.until(lambda: "SUSPENDED" in t.text, "prompt of the shell")
        time.sleep(4)  # not to wait for something: longer than several heartbeats
        self.assertIsNone(other.popen.poll(), "node 0 waits")
        t.press(b"go\n")
        self.assert_code(t.finish(), OK)
        r = other.wait()
        self.assert_code(r, OK)
        self.assertNotRegex(CSI.sub("", t.text) + r.out + r.err, "timed out|lost|error")
        self.assert_equals_reference("train.epochs=8")

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
        t = Terminal(self, "train.max_steps=60")
        self.assert_code(t.finish(), OK)
        self.assertRegex(t.text, r"\x1b\[36m[#.]+\x1b\[0m  \d+%")
        self.assertIn("\x1b[1mdone\x1b[0m", self.train("train.max_steps=7", run="forced", env={"FORCE_COLOR": "1"}).out)
        self.assertNotIn("\x1b", self.train("train.max_steps=7", run="piped").out)

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


class Watch(Case):
    def watch(self, run="run"):
        return Terminal(self, command=("watch", self.path(run)))

    def test_running(self):
        p = self.start_training("train.epochs=1000", "log.every=5", "train.eval_every=1")
        self.until_step(50, p)
        t = self.watch()
        t.until(lambda: len(t.status_lines()) >= 4, "live lines of the run")
        self.assertRegex(CSI.sub("", t.text), r"mlp on synthetic, fp32, 2 ranks on ")
        p.signal(signal.SIGTERM)
        self.assert_code(p.wait(), STOPPED)
        self.assert_code(t.finish(), STOPPED)
        plain = CSI.sub("", t.text)
        self.assertRegex(plain, r"\nstopped by a signal\r\n  steps ")
        self.assertRegex(plain, r"ctrain: \S+ was stopped by a signal at step")
        # Every epoch since the start is shown once.
        epochs = [int(n) for n in re.findall(r"[\r\n]epoch (\d+)  loss", plain)]
        self.assertEqual(epochs, list(range(epochs[0], epochs[0] + len(epochs))))

    def test_phase(self):
        """What rank 0 is doing is in its page, although the metrics say nothing about it."""
        p = self.start_training("train.epochs=1000", "log.every=5", "checkpoint.every_steps=40", "checkpoint.background=false",
                                env={"CTRAIN_FAILPOINT": "ckpt.rename@0=stop"})
        pid = self.until_stopped(0, p)
        t = self.watch()
        t.until(lambda: any(line.startswith("saving  epoch ") for _, line in t.status_lines()), "phase of the run")
        os.kill(pid, signal.SIGCONT)
        t.until(lambda: t.status_lines()[-2][1].startswith("epoch "), "training again")
        p.signal(signal.SIGTERM)
        self.assert_code(p.wait(), STOPPED)
        self.assert_code(t.finish(), STOPPED)

    def test_ended(self):
        self.train("train.epochs=9", "log.every=20")
        r = self.run_ctrain("watch", self.path("run"))
        self.assertEqual(re.findall(r"(?m)^epoch (\d+)  step \d+  training loss", r.out), ["5", "6", "7", "8", "9"])
        self.assertIn(f"best top1     {self.metrics(kind='end')[0]['best_top1']:.4f}", r.out)
        self.assertIn(self.digest(), r.out)
        r = self.run_ctrain("watch", self.path("nowhere"), expect=DATA)
        self.assertRegex(r.err, "nowhere is not a run directory")

    def test_escapes(self):
        """Strings in metrics.jsonl that anyone may have changed do not control the terminal."""
        self.train("train.epochs=1")
        lines = [{**line, **{k: f"{v}\x1b[31m\u202e" for k, v in line.items() if isinstance(v, str) and k != "kind"}} for line in self.metrics()]
        self.write("run/metrics.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
        r = self.start("watch", self.path("run")).wait()
        self.assertRegex(r.out, r"mlp\\x1b\[31m\\xe2\\x80\\xae on synthetic\\x1b")
        self.assertRegex(r.out, r"\ndone\\x1b\[31m")
        self.assertNotRegex(r.out + r.err, "[\x1b\u202e]")

    def test_failed_and_lost(self):
        self.train(*Messages.DIVERGES, expect=NUMERIC)
        r = self.run_ctrain("watch", self.path("run"), expect=NUMERIC)
        self.assertRegex(r.err, r"ctrain: error: \S+ has failed: the loss is ")
        p = self.start_training("train.epochs=1000", run="lost", env={"CTRAIN_FAILPOINT": "step:30@1=stop"})
        self.until_stopped(1, p)
        t = self.watch("lost")
        t.until(lambda: t.status_lines(), "live lines of the run")
        p.signal(signal.SIGKILL)
        p.wait()
        self.assert_code(t.finish(), COMM)
        self.assertRegex(CSI.sub("", t.text), r"lost has ended without a message, at step \d+")

    def test_resumed(self):
        """The run goes back to step 20 and continues, so its metrics file is replaced by one that begins with the same lines."""
        def line(time, **fields):
            return json.dumps({"v": 1, "time": time, **fields}) + "\n"

        def run(time, step):
            return line(time, kind="run", host="elsewhere", model="mlp", total_steps=60, steps_per_epoch=10, resumed_step=step)

        def epochs(time, *numbers):
            return "".join(line(time + n, kind="epoch", epoch=n - 1, step=10 * n, train_loss=1.5, seconds=1) for n in numbers)

        kept = run(100, 0) + epochs(100, 1, 2)
        self.write("run/config.yaml", "")
        self.write("run/metrics.jsonl", kept + epochs(100, 3, 4))
        t = Terminal(self, command=("watch", self.path("run")), env={"TERM": "dumb"})
        t.until(lambda: "epoch 4  " in t.text, "epoch 4")
        again = kept + line(200, kind="restart", step=20, message="rank 1 failed") + run(201, 20) + epochs(200, 3, 4, 5)
        os.replace(self.write("run/new", again), self.path("run/metrics.jsonl"))
        t.until(lambda: "epoch 5  " in t.text, "epoch 5")
        end = line(300, kind="end", status="done", step=60, epoch=6)
        os.replace(self.write("run/new", again + epochs(200, 6) + end), self.path("run/metrics.jsonl"))
        self.assert_code(t.finish(), OK)
        self.assertEqual(re.findall(r"(?m)^epoch (\d+)  step", t.text), list("123456"))
        self.assertEqual(t.text.count(": mlp on "), 2, t.text)
        self.assertEqual(t.text.count("restarted at step 20: rank 1 failed"), 1, t.text)
        self.assertEqual(t.text.count("resumed at step 20"), 1, t.text)

    def test_lost_before_the_first_step(self):
        self.write("run/config.yaml", "")
        self.write("run/metrics.jsonl", json.dumps({"v": 1, "kind": "run", "host": socket.gethostname(), "total_steps": 60}) + "\n")
        r = self.run_ctrain("watch", self.path("run"), expect=COMM)
        self.assertRegex(r.err, "run has ended without a message, and has reported no step\n")

    def test_control_c(self):
        p = self.start_training("train.epochs=1000", env={"CTRAIN_FAILPOINT": "step:30@1=stop"})
        self.until_stopped(1, p)
        t = self.watch()
        t.until(lambda: t.status_lines(), "live lines of the run")
        t.press(b"\x03")
        self.assertEqual(t.finish().code, -signal.SIGINT)
        self.assertIsNone(p.popen.poll(), "the run goes on")


class Messages(Case):
    DIVERGES = ("data.name=synthetic_regression", "data.shape=10,1,1", "data.targets=5", "model.hidden=10", "optim.lr=1000", "train.epochs=20")
    STAGES = "reading data: synthetic\ncompiling mlp for 24x1x12x12\nctrain "  # 24 rows of a rank

    def test_stages_before_training(self):
        r = self.train()
        self.assertTrue(r.out.startswith(self.STAGES), r.out)
        r = self.train("train.epochs=3")
        self.assertRegex(r.out, r"compiling mlp for 24x1x12x12\nreading checkpoint \S+/step-0{10}42\nctrain ")

    def test_stages_on_a_terminal(self):
        t = Terminal(self, "train.max_steps=5")
        self.assert_code(t.finish(), OK)
        # Each is drawn in place, and erased before the next line.
        for what in ("reading data: synthetic", "compiling mlp for 24x1x12x12"):
            self.assertIn("\r" + what + "\x1b[J\r", t.text)
        self.assertLess(t.text.index("compiling mlp"), t.text.index("ctrain 0."))

    def test_quiet(self):
        for option in ("-q", "--quiet", "log.console=off"):
            r = self.train(option, run=f"run{option}")
            self.assertEqual(r.out + r.err, "")

    def test_verbose(self):
        remark = r"(?m)^\d\d:\d\d:\d\d\.\d{3} info 0/2 worker: start: joined in"
        self.assertNotRegex(self.train().err, remark)
        self.assertRegex(self.train("-v", run="verbose").err, remark)
        self.assertRegex(read_text(self.path("run", "log", "rank-00000.log")), remark)

    def test_mistakes_name_no_rank(self):
        for sets, code, message in ((("model.weights=no.safetensors",), DATA, "model.weights: cannot open checkpoint no.safetensors"),
                                    (self.DIVERGES, NUMERIC, "the loss is (nan|inf) at step ")):
            r = self.train(*sets, run=f"run{code}", expect=code)
            self.assertRegex(r.err, rf"(?m)^ctrain: error: {message}")
            self.assertNotIn("rank 0", r.err)


class Unread(Case):
    """A console that is not read (a full pipe, a pager, a stopped terminal) stops neither training nor its end."""

    # More lines than a pipe and what is kept for it hold; a rank that waits is taken for dead after two seconds.
    TALK = ("log.every=1", "train.epochs=150", "train.eval_every=0", "checkpoint.every_epochs=1000", "dist.timeout=2")

    def start_unread(self, *sets):
        reader, writer = os.pipe()
        self.addCleanup(os.close, reader)
        p = self.start_training(*self.TALK, *sets, stdout=writer, stderr=writer)
        os.close(writer)
        return p, reader

    def read(self, reader):
        text = b""
        while True:
            part = os.read(reader, 65536)
            if not part:
                return text.decode()
            text += part

    def test_pipe(self):
        p, reader = self.start_unread()
        r = p.wait(40)
        self.assert_code(r, OK)
        self.assertEqual(self.metrics(kind="end")[0]["status"], "done")
        self.assertEqual(len(self.losses()), 150 * 21)
        text = self.read(reader)
        self.assertIn("epoch 1  step 1  loss", text)
        for line in text[text.index("epoch 1"):].splitlines()[:-1]:
            self.assertRegex(line, r"^epoch \d+  ")

    def test_reader_comes_back(self):
        p, reader = self.start_unread("train.epochs=100000")
        self.until_step(3000, p)
        step = self.metrics(kind="step", partial=True)[-1]["step"]
        text = os.read(reader, 65536).decode()
        while "are missing here" not in text:
            self.assertTrue(select.select([reader], [], [], 20 * SLOW)[0], text[-500:])
            text += os.read(reader, 65536).decode()
        self.assertRegex(text, r"\nctrain: \d+ lines are missing here: no one read them in time\n")
        p.signal(signal.SIGTERM)
        text += self.read(reader)
        self.assert_code(p.wait(20), STOPPED)
        self.assertIn("run the same command again", text)
        after = text[text.index("are missing here"):]
        self.assertGreaterEqual(int(re.search(r"epoch \d+  step (\d+)  loss", after)[1]), step)

    def test_reason_is_on_the_disk(self):
        p, reader = self.start_unread(*Messages.DIVERGES)
        self.until(lambda: self.metrics(kind="end", partial=True), "the end was in metrics.jsonl", None)
        self.assert_code(p.wait(30), 6)
        self.assertRegex(self.metrics(kind="end")[0]["message"], "the loss is")
        for name in ("rank-00000.log", "rank-00001.log", "launcher.log"):
            text = open(self.path("run", "log", name), encoding="utf-8").read()
            self.assertRegex(text, r" error .*the loss is .*hint: lower optim\.lr")
        self.read(reader)

    def test_killed_rank_is_on_the_disk(self):
        p, reader = self.start_unread("train.epochs=1000000")
        self.until_step(3000, p)
        pid = self.rank_pid(1)
        os.kill(pid, signal.SIGKILL)
        self.assert_code(p.wait(30), 5)
        text = open(self.path("run", "log", "launcher.log"), encoding="utf-8").read()
        self.assertRegex(text, rf"rank 1 \(pid {pid} .*signal 9")
        self.read(reader)

    def test_stopped_terminal(self):
        t = Terminal(self, "train.epochs=1000000", "train.eval_every=0", "checkpoint.every_epochs=100000", "log.every=10", "dist.timeout=2")
        t.until(lambda: len(t.status_lines()) >= 2, "status line")
        t.press(b"\x13")
        while select.select([t.master], [], [], 0.2)[0]:  # what was on its way
            t.read()
        first = self.metrics(kind="step", partial=True)[-1]["step"]
        # Longer than dist.timeout: a rank that stood in write() would be given up.
        until = time.monotonic() + 3
        while time.monotonic() < until:
            self.assertIsNone(t.process.popen.poll())
            pause()
        self.until_step(first + 1000, t.process)
        t.press(b"\x11")
        seen = len(t.chunks)
        t.until(lambda: len(t.status_lines(seen)) >= 2, "status line after the terminal goes on")
        t.press(b"\x03")
        self.assert_code(t.finish(), STOPPED)


if __name__ == "__main__":
    main()
