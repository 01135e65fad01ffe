"""The images and every command of docs/CONTAINERS.md, with real engines: Podman with Buildah, and Docker's own. Everything they store is in a
directory of the test. It takes minutes, most of them to build the program in each image: scripts/test.sh --long runs it."""

import glob
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest

import doc_commands
import slurm_cluster
from harness import COMM, DEVICE, OK, SOURCE, STOPPED, Case, die_with_parent, main, pause, read_text

PAGE = os.path.join(SOURCE, "docs", "CONTAINERS.md")
BASE = "localhost/ctrain-base:12"  # a name that no engine looks up in a registry
USER = 1234  # who runs the commands of the page: a user that does not exist on this host
KILLED = 137
VALIDATOR = "kubernetes-validate==1.37.0"  # it contains the schemas
CACHE = os.path.join(SOURCE, "build", "containers")
STEPS = "train.max_steps=30"
SHARED_FILES = ("/var/lib/containers", "/run/containers", "/run/libpod", "/run/buildah", "/run/docker", "/run/containerd")
ULIMITS = "--ulimit nofile=20000:20000 --ulimit nproc=3000:3000"  # what a container may have where the test itself is in one


def missing(*tools):
    if os.geteuid() != 0:
        return "engines with private storage need root"
    gone = [t for t in tools if not shutil.which(t)]
    return f"not installed: {' '.join(gone)}" if gone else None


def sh(*argv, **more):
    r = subprocess.run([str(a) for a in argv], capture_output=True, text=True, errors="replace", **more)
    if r.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, argv))}: exit code {r.returncode}\n{r.stdout[-3000:]}\n{r.stderr[-3000:]}")
    return r.stdout


def base_system():
    """A minimal Debian 12 as a tar file; that of scripts/test_chroot.sh if it is there."""
    made = os.path.join(SOURCE, "build", "chroot", "bookworm.tar")
    if os.path.exists(made):
        return made
    path = os.path.join(CACHE, "bookworm.tar")
    if not os.path.exists(path):
        os.makedirs(CACHE, exist_ok=True)
        mirror = sh("bash", "-c", "apt-get indextargets --format '$(REPO_URI)|$(ORIGIN)|$(LABEL)' 'Created-By: Packages' | "
                                  "awk -F'|' '$2 == \"Debian\" && $3 == \"Debian\" { print $1; exit }'").strip()
        sh("mmdebstrap", "--mode=root", "--format=tar", "--variant=minbase", "--dpkgopt=force-unsafe-io", "bookworm", path + ".part", mirror)
        os.rename(path + ".part", path)
    return path


def host_state():
    """What engines change outside of their directories, and must be as before after the tests."""
    rules = subprocess.run(["iptables", "-t", "nat", "-S"], capture_output=True, text=True, check=False).stdout if shutil.which("iptables") else ""
    groups = {path for path in glob.glob("/sys/fs/cgroup/*/") + glob.glob("/sys/fs/cgroup/*/*/") if re.search("/(docker|libpod|buildah)", path)}
    return {"interfaces": sorted(os.listdir("/sys/class/net")), "NAT": rules, "forwarding": read_text("/proc/sys/net/ipv4/ip_forward"),
            "cgroups": sorted(groups), "files": [f for f in SHARED_FILES if os.path.exists(f)]}


def clean_up(before, cgroup):
    """Removes the empty control groups of an engine, and the files that it stores outside of its directories."""
    for top in glob.glob(f"/sys/fs/cgroup/{cgroup}") + glob.glob(f"/sys/fs/cgroup/*/{cgroup}"):
        for directory, _, _ in os.walk(top, topdown=False):
            os.rmdir(directory)
    for path in SHARED_FILES:
        if path not in before["files"]:
            shutil.rmtree(path, ignore_errors=True)
    after = {**host_state(), "files": before["files"]}
    if after != before:
        raise AssertionError(f"the engine has changed this machine:\n{before}\n{after}")


class Podman:
    """Rootless storage is not needed to keep out of /var/lib/containers: every path is in the directory."""

    name = "podman"
    tools = ("podman", "buildah", "runc", "mmdebstrap")

    def __init__(self, directory):
        self.cgroup = os.path.basename(directory)
        self.env = {**os.environ, "CONTAINERS_STORAGE_CONF": f"{directory}/storage.conf", "CONTAINERS_REGISTRIES_CONF": f"{directory}/registries.conf",
                    "CONTAINERS_CONF": f"{directory}/containers.conf", "TMPDIR": directory}
        files = {
            "storage.conf": f'[storage]\ndriver = "overlay"\ngraphroot = "{directory}/root"\nrunroot = "{directory}/run"\n',
            "policy.json": '{"default":[{"type":"insecureAcceptAnything"}]}',
            "registries.conf": 'unqualified-search-registries = ["localhost"]\nshort-name-mode = "disabled"\n',
            "containers.conf": '[containers]\ndefault_ulimits = ["nofile=20000:20000","nproc=3000:3000"]\nnetns = "host"\n'
                               '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "none"\n',
        }
        for name, text in files.items():
            with open(os.path.join(directory, name), "w", encoding="utf-8") as f:
                f.write(text)
        os.makedirs(os.path.join(CACHE, "ccache"), exist_ok=True)
        self.program = f"""#!/bin/bash
command=$1
shift
case "$command $*" in
build*) exec buildah --signature-policy {directory}/policy.json build --isolation chroot --layers -v {CACHE}/ccache:/root/.cache/ccache \\
	--build-arg BASE={BASE} "$@" ;;
run*--ulimit*) exec podman run --pull never --cgroup-parent /{self.cgroup} {ULIMITS} "$@" ;;
run*) exec podman run --pull never --cgroup-parent /{self.cgroup} "$@" ;;
*) exec podman "$command" "$@" ;;
esac
"""

    def import_base(self, docker):
        docker("import", base_system(), BASE)

    def stop(self):
        subprocess.run(["podman", "rm", "--all", "--force", "--time", "0"], env=self.env, capture_output=True, check=False)


class Docker:
    name = "docker"
    tools = ("dockerd", "docker", "mmdebstrap")

    def __init__(self, directory, prefix=()):
        self.directory, self.cgroup = directory, os.path.basename(directory)
        client = "/usr/bin/docker" if os.path.exists("/usr/bin/docker") else shutil.which("docker")
        self.env = {**os.environ, "DOCKER_HOST": f"unix://{directory}/sock", "DOCKER_CONFIG": f"{directory}/config"}
        self.log = open(f"{directory}/dockerd.log", "wb")
        self.daemon = subprocess.Popen([*prefix, "dockerd", "--data-root", f"{directory}/data", "--exec-root", f"{directory}/exec", "-p", f"{directory}/pid", "-H",
                                        f"unix://{directory}/sock", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--bridge=none",
                                        "--default-ulimit", "nofile=20000:20000", "--cgroup-parent", f"/{self.cgroup}"],
                                       stdout=self.log, stderr=self.log, preexec_fn=die_with_parent)
        deadline = time.monotonic() + 60
        while subprocess.run([client, "info"], env=self.env, capture_output=True, check=False).returncode != 0:
            if self.daemon.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise AssertionError("dockerd did not start:\n" + read_text(f"{directory}/dockerd.log")[-3000:])
            pause()
        self.program = f"""#!/bin/bash
command=$1
shift
case "$command $*" in
build*) export DOCKER_BUILDKIT=1; exec {client} build --network host --build-arg BASE={BASE} "$@" ;;
compose*) exec docker-compose "$@" ;;
run*--network*) exec {client} run --pull never "$@" ;;
run*) exec {client} run --pull never --network host "$@" ;;
*) exec {client} "$command" "$@" ;;
esac
"""

    def import_base(self, docker):
        docker("import", base_system(), BASE)

    def stop(self):
        try:
            with open(f"{self.directory}/pid", encoding="utf-8") as f:
                os.kill(int(f.read()), signal.SIGTERM)
        except (FileNotFoundError, ProcessLookupError):
            self.daemon.terminate()
        self.daemon.wait()
        self.log.close()
        subprocess.run(["umount", f"{self.directory}/exec/netns/default"], capture_output=True, check=False)


class Commands:
    """Cases for both engines. The image is built once for each, by the first command of the page."""

    engine = None

    @classmethod
    def setUpClass(cls):
        why = missing(*cls.engine.tools)
        if why:
            raise unittest.SkipTest(why)
        before = host_state()
        cls.directory = tempfile.mkdtemp(prefix=f"ctrain-{cls.engine.name}-")
        cls.addClassCleanup(clean_up, before, os.path.basename(cls.directory))
        cls.addClassCleanup(shutil.rmtree, cls.directory, ignore_errors=True)
        cls.running = cls.engine(cls.directory)
        cls.addClassCleanup(cls.running.stop)
        os.makedirs(f"{cls.directory}/bin")
        with open(f"{cls.directory}/bin/docker", "w", encoding="utf-8") as f:
            f.write(cls.running.program)
        os.chmod(f"{cls.directory}/bin/docker", 0o755)
        cls.running.env["PATH"] = f"{cls.directory}/bin:{os.environ['PATH']}"
        cls.running.env["NODE0"] = "127.0.0.1"
        cls.running.env["CTRAIN_TOKEN"] = "secret of this test"
        cls.work = f"{cls.directory}/work"
        files = sh("git", "-C", SOURCE, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
        for name in filter(lambda n: n and os.path.isfile(os.path.join(SOURCE, n)), files):
            os.makedirs(os.path.dirname(os.path.join(cls.work, name)), exist_ok=True)
            shutil.copy(os.path.join(SOURCE, name), os.path.join(cls.work, name))
        sh("chown", "-R", f"{USER}:{USER}", cls.work)
        cls.running.import_base(cls.docker)
        cls.page = [c for _, _, c in doc_commands.commands("docs/CONTAINERS.md", read_text(PAGE))]
        cls.done = set()
        began = time.monotonic()
        cls.docker_line(cls.page[0])
        size = int(cls.docker("image", "inspect", "--format", "{{.Size}}", "ctrain:cpu"))
        base = int(cls.docker("image", "inspect", "--format", "{{.Size}}", BASE))
        print(f"{cls.engine.name}: image of {size / 1e6:.0f} MB on a base of {base / 1e6:.0f} MB, built in {time.monotonic() - began:.0f} s", file=sys.stderr)
        cls.docker("tag", "ctrain:cpu", "ctrain:cuda")
        # The data set of all cases.
        cls.docker_line(next(c for c in cls.page if " data digits " in c))

    @classmethod
    def docker(cls, *args):
        return sh(f"{cls.directory}/bin/docker", *args, env=cls.running.env)

    @classmethod
    def shell(cls, command, **more):
        """A command of the page as the user would type it; the user is not root. Where the test itself has a limit, no container has none."""
        command = command.replace("$(id -u):$(id -g)", f"{USER}:{USER}")
        limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
        if limit != resource.RLIM_INFINITY:
            command = command.replace("memlock=-1", f"memlock={limit}")
        return subprocess.Popen(["bash", "-c", command], cwd=cls.work, env=cls.running.env,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", **more)

    @classmethod
    def docker_line(cls, command, *sets, expect=OK):
        cls.done.add(command)
        p = cls.shell(" ".join([command, *sets]))
        try:
            out, _ = p.communicate(timeout=1200)
        except subprocess.TimeoutExpired:
            p.kill()
            raise AssertionError(f"still running: {command}") from None
        if p.returncode != expect:
            raise AssertionError(f"{command}\nended with {p.returncode}, not {expect}:\n{out[-4000:]}")
        return out

    def tearDown(self):
        super().tearDown()
        shutil.rmtree(f"{self.work}/runs", ignore_errors=True)

    def steps(self, name):
        text = read_text(f"{self.work}/runs/{name}/metrics.jsonl")
        return [json.loads(line)["step"] for line in text[:text.rfind("\n") + 1].splitlines() if '"step"' in line and '"kind":"step"' in line]

    def test_1_commands_that_end(self):
        """Each command of the page that other cases do not run."""
        special = ("podman ", "--gpus", "--detach", "docker stop", "docker wait", "docker start", "docker rm", "--nodes", "docker compose", "srun ")
        simple = [c for c in self.page if not any(s in c for s in special) and c not in self.done]
        self.assertGreater(len(simple), 5)
        for command in simple:
            with self.subTest(command=command):
                shutil.rmtree(f"{self.work}/runs", ignore_errors=True)
                out = self.docker_line(command, *([STEPS] if "mnist_ddp" in command else []))
                if command.endswith(" info"):
                    self.assertIn("onednn", out)
                elif ".yaml" in command and "/usr/local" not in command:
                    owners = {os.stat(f).st_uid for f in glob.glob(f"{self.work}/runs/*/*")}
                    self.assertEqual(owners, {USER})

    def test_2_stop_and_resume(self):
        run, stop, wait, start, remove = [c for c in self.page if re.search(r" train$|--name train ", c)]
        self.addCleanup(subprocess.run, [f"{self.directory}/bin/docker", "rm", "--force", "train"], env=self.running.env, capture_output=True)
        self.docker_line(run, "log.every=1")
        self.until(lambda: self.steps("mnist_ddp"), "there was a step")
        self.docker_line(stop)
        self.assertEqual(self.docker_line(wait).split()[-1], str(STOPPED))
        last = self.steps("mnist_ddp")[-1]
        self.done.add(start)
        again = self.shell(start)
        self.until(lambda: self.steps("mnist_ddp")[-1] > last + 3, "the run continued")
        steps = self.steps("mnist_ddp")
        self.assertEqual(steps, list(range(1, steps[-1] + 1)))
        self.docker_line(remove)
        again.communicate(timeout=30)
        self.assertIn(again.returncode, (KILLED, STOPPED))  # Docker kills it, Podman stops it

    def test_3_two_nodes(self):
        nodes = [c for c in self.page if "--node-rank" in c]
        self.assertEqual(len(nodes), 2)
        self.done.update(nodes)
        both = [self.shell(f"{c} {STEPS}") for c in reversed(nodes)]
        for p in both:
            out, _ = p.communicate(timeout=120)
            self.assertEqual(p.returncode, OK, out)
        run = json.loads(read_text(f"{self.work}/runs/two/metrics.jsonl").splitlines()[0])
        self.assertEqual((run["world_size"], run["ranks_per_node"]), (4, 2))

    def test_4_no_gpu(self):
        command = next(c for c in self.page if "--gpus" in c)
        self.done.add(command)
        if self.engine is Docker:
            self.assertIn('could not select device driver "" with capabilities: [[gpu]]', self.docker_line(command, expect=125))
        without = command.replace("--gpus all ", "")
        self.docker_line(without, expect=DEVICE)

    def test_5_memory_limit(self):
        """The kernel kills a rank, and the message names it."""
        out = self.docker_line(f"docker run --rm --memory 96m --user {USER}:{USER} -v $PWD:/work ctrain:cpu configs/smoke.yaml model.name=mlp "
                               "model.hidden=[8192,8192]", expect=COMM)
        self.assertRegex(out, r"rank \d .*signal 9")

    def test_6_user_and_files(self):
        """By default, user 1000 without a capability; nothing of the build is left, and no file of the image is writable."""
        out = self.docker("run", "--rm", "--entrypoint", "sh", "ctrain:cpu", "-c",
                          "id -u; pwd; echo $HOME; find / -xdev -writable -type f -not -path '/proc/*' -not -path '/sys/*' 2>/dev/null; which gcc cmake; "
                          "ls /var/log /var/lib/apt/lists; exit 0")
        self.assertEqual(out.split(), ["1000", "/work", "/work", "/var/lib/apt/lists:", "/var/log:"][:3] + out.split()[3:])
        self.assertNotRegex(out, r"gcc|cmake|\.log\b")

    def as_slurm_step(self, command, work, env, prepare, as_user=()):
        """A command of the page on a node of a real Slurm: two tasks, each in a container. prepare(cluster) comes first. Then the same with a
        job that is stopped: both containers save."""
        why = slurm_cluster.why_not()
        if why:
            self.skipTest(why)
        cluster = slurm_cluster.Cluster()
        self.addCleanup(cluster.stop)
        prepare(cluster)
        env = {**env, "SLURM_CONF": cluster.env["SLURM_CONF"], "XDG_CACHE_HOME": f"{work}/.cache"}
        command = command.replace("srun ", "srun --nodes=1 --ntasks=2 ", 1)

        def step(*sets):
            line = command.replace(".yaml", " ".join([".yaml", *sets]))
            return self.start("-c", line, program="bash", prefix=[*cluster.hosts[0].prefix(work), *as_user], env=env)

        def metrics(name):
            text = read_text(f"{work}/runs/{name}/metrics.jsonl")
            return [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines()]
        self.assert_code(step(STEPS).wait(120), OK)
        self.assertEqual(metrics("mnist_ddp")[0]["world_size"], 2)
        p = step("run.name=stopped", "train.epochs=1000", "log.every=1")
        self.until(lambda: any(m["kind"] == "step" for m in metrics("stopped")), "there was a step", p)
        cluster.query("scancel", "--signal=TERM", cluster.query("squeue", "-h", "-o", "%i").strip())
        r = p.wait(60)
        self.assert_code(r, STOPPED)
        self.assertEqual([(m["kind"], m.get("status")) for m in metrics("stopped")[-1:]], [("end", "stopped by a signal")], r.describe())

    def test_9_nothing_was_forgotten(self):
        """Runs last: each docker command of the page has been executed."""
        left = [c for c in self.page if c not in self.done and not c.startswith(("srun ", "podman ")) and "docker compose" not in c]
        self.assertEqual(left, [])


class WithPodman(Commands, Case):
    engine = Podman

    def test_7_reproducible(self):
        """Built again without cached layers: the same image."""
        ids = [self.docker("build", "--timestamp", "0", "--no-cache", "-q", "-f", f"{self.work}/docker/Dockerfile.cpu", self.work).split()[-1] for _ in range(2)]
        self.assertEqual(ids[0], ids[1])

    def test_8_cuda_image(self):
        """With a stand-in for both bases, and the toolkit of this machine."""
        cuda = os.path.realpath(os.environ.get("CUDA_HOME", "/usr/local/cuda"))
        if not os.path.exists(f"{cuda}/bin/nvcc"):
            self.skipTest("no CUDA toolkit on this machine")
        sh("buildah", "--signature-policy", f"{self.directory}/policy.json", "build", "--isolation", "chroot", "--layers", "-v",
           f"{CACHE}/ccache:/root/.cache/ccache", "-v", f"{cuda}:/usr/local/cuda:ro", "--build-arg", f"BASE={BASE}", "--build-arg", f"RUNTIME={BASE}",
           "-t", "localhost/ctrain:gpu", "-f", f"{self.work}/docker/Dockerfile.cuda", self.work, env=self.running.env)
        run = ["run", "--rm", "-v", f"{cuda}:/usr/local/cuda:ro", "localhost/ctrain:gpu"]
        info = self.docker(*run, "info")
        self.assertRegex(info, r"cuda")
        p = self.shell(f"docker {' '.join(run)} /usr/local/share/ctrain/configs/smoke.yaml device=cuda")
        out, _ = p.communicate(timeout=60)
        self.assertEqual(p.returncode, DEVICE, out)
        self.assertIn("driver", out)

    @classmethod
    def user(cls):
        """A user without privileges, with the image. Returns their environment, a shell command after which their processes, but no others,
        know this user, and the start of a command that the user runs."""
        directory = f"{cls.directory}/user"
        env = {**cls.running.env, "HOME": f"{directory}/home", "XDG_RUNTIME_DIR": f"{directory}/runtime", "CONTAINERS_STORAGE_CONF": f"{directory}/storage.conf",
               "TMPDIR": f"{directory}/home"}
        lines = {"passwd": f"trainer:x:{USER}:{USER}::{directory}/home:/bin/sh", "group": f"trainer:x:{USER}:", "subuid": "trainer:200000:65536",
                 "subgid": "trainer:200000:65536"}
        shutil.rmtree(f"{directory}/runtime", ignore_errors=True)
        if not os.path.exists(directory):
            os.makedirs(f"{directory}/home")
            os.chmod(cls.directory, 0o755)
            for name, line in lines.items():
                with open(f"{directory}/{name}", "w", encoding="utf-8") as f:
                    f.write(f"{read_text(f'/etc/{name}')}\n{line}\n".lstrip())
            with open(f"{directory}/storage.conf", "w", encoding="utf-8") as f:
                f.write(f'[storage]\ndriver = "overlay"\ngraphroot = "{directory}/home/root"\nrunroot = "{directory}/runtime/run"\n')
            cls.docker("save", "--output", f"{directory}/home/image.tar", "ctrain:cpu")
            sh("cp", "-r", f"{cls.work}/configs", f"{cls.work}/datasets", f"{directory}/home")
            sh("chown", "-R", f"{USER}:{USER}", f"{directory}/home")
        os.makedirs(f"{directory}/runtime", mode=0o700)
        os.chown(f"{directory}/runtime", USER, USER)
        return env, " && ".join(f"mount --bind {directory}/{n} /etc/{n}" for n in lines), ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]

    def test_rootless(self):
        """The container runs in a user namespace; the files of the run are those of the user."""
        env, know_user, as_user = self.user()
        commands = [c for c in self.page if c.startswith("podman ")]
        self.assertTrue(commands)
        lines = ["set -e", "cd", "podman load --quiet --input image.tar", *[f"{c} {STEPS}".replace(" run ", " run --pull never ", 1) for c in commands],
                 "id -u", "podman info --format '{{.Host.Security.Rootless}}'"]
        # Podman's helper process ends with the PID namespace.
        out = sh("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c", know_user + ' && exec "$0" "$@"', *as_user,
                 "bash", "-c", "\n".join(lines), env=env)
        self.assertEqual(out.split()[-2:], [str(USER), "true"])
        files = glob.glob(f"{env['HOME']}/runs/*/*")
        self.assertTrue(files)
        self.assertEqual({os.stat(f).st_uid for f in files}, {USER})

    def test_slurm_step(self):
        """The user starts containers without root. PID 1 of the test's hosts does not reap, so Podman waits 20 s for each."""
        env, know_user, as_user = self.user()
        shutil.rmtree(f"{env['HOME']}/runs", ignore_errors=True)

        def prepare(cluster):
            first = cluster.hosts[0]
            first.run("sh", "-c", know_user)
            first.run(*as_user, "podman", "load", "--quiet", "--input", f"{env['HOME']}/image.tar", env=env)
        command = next(c for c in self.page if c.startswith("srun podman "))
        self.as_slurm_step(command.replace(" run ", " run --pull never ", 1), env["HOME"], env, prepare, as_user)


class WithDocker(Commands, Case):
    engine = Docker

    def inner(self, prefix, name):
        """Another engine, in a network namespace that vanishes with it. Returns its environment."""
        before = host_state()
        directory = tempfile.mkdtemp(prefix=f"ctrain-{name}-")
        self.addCleanup(clean_up, before, os.path.basename(directory))
        self.addCleanup(shutil.rmtree, directory, ignore_errors=True)
        inner = Docker(directory, prefix)
        self.addCleanup(inner.stop)
        env = {**self.running.env, **inner.env, "PATH": self.running.env["PATH"]}
        self.docker("save", "--output", f"{directory}/image.tar", "ctrain:cpu")
        sh(f"{self.directory}/bin/docker", "load", "--input", f"{directory}/image.tar", env=env)
        return env

    def test_slurm_step(self):
        """The engine runs on the node: it has the node's network and names."""
        command = next(c for c in self.page if c.startswith("srun bash ")).replace("$(id -u):$(id -g)", f"{USER}:{USER}")
        env = dict(self.running.env)

        def prepare(cluster):
            env.update(self.inner(["nsenter", f"--target={cluster.hosts[0].init}", "--net", "--uts", "unshare", "--mount", "sh", "-c",
                                   f'mount --bind {cluster.etc_hosts} /etc/hosts && exec "$0" "$@"'], "slurm"))
        self.as_slurm_step(command, self.work, env, prepare)

    def test_8_compose(self):
        """Two nodes in a bridge network, in a network namespace that vanishes with the engine."""
        why = missing("docker-compose", "unshare")
        if why:
            self.skipTest(why)
        command = next(c for c in self.page if "docker compose" in c)
        env = {**self.inner(["unshare", "--net", "--kill-child", "--fork"], "compose"), "CTRAIN_USER": f"{USER}:{USER}"}
        config = f"{self.work}/two.yaml"
        with open(config, "w", encoding="utf-8") as f:
            f.write("base: configs/mnist_ddp.yaml\nrun: {name: two}\ntrain: {max_steps: 30}\n")
        out = sh("bash", "-c", command, cwd=self.work, env={**env, "CTRAIN_CONFIG": "two.yaml"})
        run, *_, end = [json.loads(line) for line in read_text(f"{self.work}/runs/two/metrics.jsonl").splitlines()]
        self.assertEqual((run["world_size"], run["ranks_per_node"]), (4, 2), out)
        self.assertEqual((end["kind"], end["step"]), ("end", 30), out)
        sh("bash", "-c", command.replace(" up", " down"), cwd=self.work, env=env)


class Manifests(Case):
    def test_schemas(self):
        """The manifests are valid in old and new versions of Kubernetes; a misspelt key is an error. A PyTorchJob is no type of Kubernetes: its
        pods are checked. In schemas before 1.29, a rule on exit codes requires also conditions, although Kubernetes refuses both in one rule."""
        target = os.path.join(CACHE, "kubernetes")
        env = {**os.environ, "PYTHONPATH": target}

        def check(*args):
            return subprocess.run([sys.executable, "-m", "kubernetes_validate", "--strict", *args], env=env, capture_output=True, text=True, check=False)
        if not os.path.exists(target):
            r = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--target", target + ".part", VALIDATOR], capture_output=True,
                               text=True, check=False)
            if r.returncode != 0:
                self.skipTest(f"pip cannot install {VALIDATOR}: " + r.stderr.strip()[-200:])
            os.rename(target + ".part", target)
        directory = os.path.join(SOURCE, "docker", "k8s")
        template = re.search(r"^      template: &pod\n((?:        .*\n)+)", read_text(f"{directory}/pytorchjob.yaml"), re.M)[1]
        pod = self.write("pod.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: ctrain}\n" + textwrap.dedent(template))
        broken = self.write("broken.yaml", read_text(f"{directory}/job.yaml").replace("completionMode", "completionmode"))
        for version in ("1.29", "1.37"):
            for path, n in ((f"{directory}/job.yaml", 2), (pod, 1)):
                with self.subTest(version=version, file=path):
                    r = check("-k", version, path)
                    self.assertEqual((r.returncode, (r.stdout + r.stderr).count(" passed ")), (0, n), r.stdout + r.stderr)
            r = check("-k", version, broken)
            self.assertEqual(r.returncode, 1)
            self.assertIn("completionmode", r.stdout + r.stderr)


if __name__ == "__main__":
    main()
