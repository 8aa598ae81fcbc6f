"""The processes of instances, and the instances themselves. Run as a program it is the supervisor of one process."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

from common import clock, log, now_text, read_json, seconds, size, write_file


def supervise(directory):
    """Runs one process to its end and writes down how it ended. It outlives the agent: it is a process of its own, which was given
    the lock of the directory and holds it for as long as the process lives."""
    spec = read_json(os.path.join(directory, "spec.json"), None)
    try:
        child = subprocess.Popen(spec["argv"], env=spec["env"], cwd=spec["cwd"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                 start_new_session=True)
    except OSError as e:
        exit_ = {"code": 127, "message": str(e)}
    else:
        write_file(os.path.join(directory, "started.json"), json.dumps({"pid": child.pid, "since": since(child.pid), "at": now_text()}))
        reader = threading.Thread(target=keep_output, args=(child.stdout.fileno(), os.path.join(directory, "output"), spec["logMax"]), daemon=True)
        reader.start()
        code = child.wait()
        kill_group(child.pid, signal.SIGKILL)  # what it left behind
        reader.join(1)
        exit_ = {"code": code} if code >= 0 else {"code": 128 - code, "signal": signal.Signals(-code).name}
    exit_["at"] = now_text()
    write_file(os.path.join(directory, "exit.json"), json.dumps(exit_))


def keep_output(fd, path, most):
    """Keeps the last output of a process: a file of up to what the service says, and the one before it."""
    out, size = open(path, "ab", buffering=0), 0
    while True:
        part = os.read(fd, 65536)
        if not part:
            return
        try:
            if size + len(part) > most and size:
                out.close()
                os.rename(path, path + ".1")
                out, size = open(path, "ab", buffering=0), 0
            out.write(part)
            size += len(part)
        except OSError:
            pass  # a full disk must not hold the process up


def since(pid):
    """When a process began, in the kernel's own measure: with it a number is that process and no later one. "" where nobody tells."""
    try:
        with open("/proc/%d/stat" % pid) as f:
            return f.read().rsplit(")", 1)[1].split()[19]
    except (OSError, IndexError):
        return ""


def kill_group(pid, sig):
    try:
        os.killpg(pid, sig)
    except OSError:
        pass


class Process:
    """One attempt at running an instance, below a directory of its own."""

    def __init__(self, directory):
        self.dir, self.child = directory, None

    def path(self, name):
        return os.path.join(self.dir, name)

    def start(self, argv, env, cwd, log_max):
        shutil.rmtree(self.dir, ignore_errors=True)
        os.makedirs(self.dir, 0o700)
        write_file(self.path("spec.json"), json.dumps({"argv": argv, "env": env, "cwd": cwd, "logMax": log_max}))
        lock = os.open(self.path("lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)  # goes over to the supervisor
            self.child = subprocess.Popen([sys.executable, "-B", os.path.abspath(__file__), self.dir], stdin=subprocess.DEVNULL,
                                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/", pass_fds=[lock], start_new_session=True)
        finally:
            os.close(lock)

    def started(self):
        return read_json(self.path("started.json"), None)

    def exit(self):
        return read_json(self.path("exit.json"), None)

    def alive(self):
        """Whether the supervisor lives: it holds a lock, which the kernel lets go of whatever ends it."""
        if self.child:
            self.child.poll()  # so that it leaves nothing behind
        try:
            fd = os.open(self.path("lock"), os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return False
        except BlockingIOError:
            return True
        finally:
            os.close(fd)

    def kill(self, sig):
        """Signals the process and what it started; False if it has not begun yet."""
        s = self.started()
        if s and self.alive() and not self.exit():
            kill_group(s["pid"], sig)
        return s is not None

    def bury(self):
        """Ends what a supervisor that was killed left running."""
        s = self.started()
        if s and s["since"] and s["since"] == since(s["pid"]):
            kill_group(s["pid"], signal.SIGKILL)


def cannot(spec):
    """Says why this agent cannot run a service as it is described, or None. Better refused than run as something else."""
    no = lambda what, hint: "unsupported: %s: this agent runs plain processes; %s" % (what, hint)
    for what in ("image", "volumes", "config", "init", "sidecars", "mounts", "tty", "user", "ingress", "export", "addresses"):
        if spec.get(what):
            return no(what, "leave it out, or run the service on a worker of Skerry's own")
    if spec.get("runtime") != "native":
        return no("runtime %s" % spec.get("runtime", "auto"), "say runtime: native")
    if spec.get("probes") and any(spec["probes"].values()):
        return no("probes", "the service counts as ready while it runs")
    security = {k: v for k, v in (spec.get("security") or {}).items() if v and (k, v) != ("seccomp", "unconfined")}
    if security:
        return no("security.%s" % sorted(security)[0], "nothing keeps it apart from the rest of the device")
    for p in spec.get("ports") or []:
        if p.get("hostPort", 0) not in (0, -1, p["port"]):
            return no("hostPort %d for port %d" % (p["hostPort"], p["port"]), "processes listen on the device's own ports: let both be the same")
    if not spec.get("command"):
        return no("no command", "name the program")
    return None


def fence(a):
    f = a.get("fence") or {}
    return f.get("rootEpoch", 0), f.get("clusterTerm", 0), f.get("sequence", 0)


class Instance:
    """One instance on this device, kept in a file of its own.

    begin -> (refused: Failed) | start -> Running -> exited -> BackOff -> start ... | Terminated | Failed
    end, from anywhere: TERM, after the grace KILL, then gone, or the next one begins
    """

    def __init__(self, agent, assignment, data=None):
        self.agent = agent
        d = data or {}
        self.a = assignment
        self.state, self.phase = d.get("state", "WorkerScheduled"), d.get("phase", "Starting")
        self.reason, self.exit = d.get("reason", ""), d.get("exit")
        self.restarts, self.restart = d.get("restarts", 0), d.get("restart", assignment.get("restart", 0))
        self.times, self.attempt = d.get("times", []), d.get("attempt", 0)
        self.ending = d.get("ending", False)
        self.started_at = d.get("startedAt")
        self.retry_at = self.kill_at = self.asked = None
        self.process = Process(self.home(self.attempt)) if self.attempt else None

    @property
    def id(self):
        return self.a["id"]

    @property
    def spec(self):
        return self.a["spec"]

    def home(self, attempt=None):
        d = os.path.join(self.agent.dir, "instances", self.id)
        return os.path.join(d, str(attempt)) if attempt is not None else d

    def save(self):
        write_file(os.path.join(self.home(), "instance.json"), json.dumps({
            "assignment": self.a, "state": self.state, "phase": self.phase, "reason": self.reason, "exit": self.exit, "restarts": self.restarts,
            "restart": self.restart, "times": self.times, "attempt": self.attempt, "ending": self.ending, "startedAt": self.started_at}))
        self.agent.observed.put("inst/" + self.id, self.observation())

    def observation(self):
        o = {"id": self.id, "generation": self.a["generation"], "fence": self.a["fence"], "state": self.state, "phase": self.phase,
             "ready": self.state == "Running" and self.phase == "Running", "restarts": self.restarts, "restart": self.restart, "runtime": "native"}
        if self.reason:
            o["reason"] = self.reason[:500]
        if self.exit:
            o["exit"] = self.exit
        if self.started_at:
            o["startedAt"] = self.started_at
        ports = self.spec.get("ports") or []
        if ports and self.phase == "Running":
            o["ports"] = [{"name": p.get("name", ""), "port": p["port"], "hostPort": p["port"], "protocol": p.get("protocol", "tcp")} for p in ports]
        return o

    def begin(self):
        os.makedirs(self.home(), 0o700, exist_ok=True)
        why = cannot(self.spec)
        mine = {p["port"] for p in self.spec.get("ports") or []}
        for i in self.agent.instances.values():
            taken = mine & {p["port"] for p in i.spec.get("ports") or []}
            if i is not self and taken and not why and i.phase != "Exited":
                why = "unsupported: port %d: %s listens there, and processes share the device's ports" % (min(taken), i.id)
        if why:
            self.finish("Failed", why)
        else:
            self.start()

    def start(self):
        a, s = self.a, self.spec
        self.attempt += 1
        app = a["service"]["app"]
        env = {"PATH": os.environ.get("PATH", os.defpath), "HOSTNAME": self.id, "SKERRY_INSTANCE": self.id, "SKERRY_SERVICE": a["service"]["service"],
               "SKERRY_APP": app["name"], "SKERRY_NAMESPACE": app["namespace"], "SKERRY_ORDINAL": str(a.get("ordinal", 0)),
               "SKERRY_WORKER": self.agent.id.data["name"], "SKERRY_ENDPOINTS": os.path.join(self.home(), "endpoints.json")}
        env.update(s.get("env") or {})
        self.agent.write_endpoints(self)
        self.phase, self.retry_at, self.kill_at, self.asked = "Starting", None, None, None
        self.process = Process(self.home(self.attempt))
        self.save()  # what is started must be known to the next life of this agent
        shutil.rmtree(self.home(self.attempt - 2), ignore_errors=True)
        self.process.start(list(s["command"]) + list(s.get("args") or []), env, s.get("workingDir") or "/", size((s.get("logs") or {}).get("maxSize") or "10Mi"))

    def live(self):
        return self.process is not None and self.process.exit() is None and self.process.alive()

    def stop(self, why):
        """Asks the process to end; tick sees to it that it does."""
        if self.asked is None:
            self.asked, self.told = why, False
            self.kill_at = clock() + seconds(self.spec.get("terminationGrace") or "10s")
            self.tell()

    def tell(self):
        sig = self.spec.get("stopSignal") or "SIGTERM"
        number = int(sig) if sig.isdigit() else getattr(signal, sig if sig.startswith("SIG") else "SIG" + sig, signal.SIGTERM)
        self.told = self.process.kill(number)

    def end(self):
        self.ending, self.phase, self.retry_at = True, "Stopping", None
        if self.live():
            self.stop("end")
        self.save()

    def assign(self, a):
        """Takes an assignment with a token that is not lower."""
        if fence(a) > fence(self.a):
            if a.get("held") == self.a["fence"] and a["revision"] == self.a["revision"] and not self.ending and self.phase != "CutOff":
                self.a.update(fence=a["fence"], generation=a["generation"])  # the same copy was chosen again: it goes on
            else:
                self.end()  # what is wanted then begins when it is gone
                return
        elif self.ending:
            return
        self.a["generation"] = a["generation"]
        if a.get("restart", 0) > self.a.get("restart", 0):
            self.a["restart"] = a["restart"]
            if self.phase == "Running" and self.live():
                self.reason, self.phase = "restart was asked for", "Stopping"
                self.stop("restart")
            elif self.phase == "BackOff":
                self.times, self.retry_at, self.restart = [], clock(), a["restart"]
        self.save()

    def finish(self, state, why):
        self.state, self.phase, self.reason, self.retry_at = state, "Exited", why, None
        self.save()

    def tick(self):
        """Does what is due. False: the instance is gone."""
        if self.live():
            if self.kill_at and clock() > self.kill_at:
                self.process.kill(signal.SIGKILL)
            elif self.asked and not self.told:
                self.tell()  # it had not begun when it was asked to end
            if self.phase == "Starting" and self.process.started():
                self.state, self.phase, self.reason, self.started_at = "Running", "Running", "", self.process.started()["at"]
                self.restart = max(self.restart, self.a.get("restart", 0))
                self.save()
            self.cut_off()
            return True
        if self.ending:
            if self.process:
                self.process.bury()
            shutil.rmtree(self.home(), ignore_errors=True)
            return False
        if self.phase in ("Exited", "CutOff"):
            return True
        if self.phase == "BackOff":
            if self.retry_at is None or clock() >= self.retry_at:
                if not self.overdue():
                    self.start()
            return True
        self.exited()
        return True

    def exited(self):
        """The process has ended, or never came to begin."""
        exit_ = self.process.exit()
        if exit_ is None and self.asked is None:  # the device went down with it; that is not its fault
            self.process.bury()
            self.restarts += 1
            self.phase, self.reason, self.retry_at = "BackOff", "the device was started anew, or its supervisor was killed", clock()
            self.save()
            return
        exit_ = exit_ or {"code": 137, "at": now_text(), "message": "it ended with its supervisor"}
        asked, self.asked, self.kill_at = self.asked, None, None
        self.exit = exit_
        why = exit_.get("message") or ("ended by " + exit_["signal"] if exit_.get("signal") else "ended with status %d" % exit_["code"])
        log("%s %s" % (self.id, why))
        if asked == "cut off":
            self.state, self.phase = "WorkerScheduled", "CutOff"
            self.save()
            return
        if asked == "restart":
            self.restarts += 1
            self.restart = self.a.get("restart", 0)
            self.start()
            return
        r = self.spec.get("restart") or {}
        policy = r.get("policy", "always")
        if exit_["code"] == 0 and policy != "always":
            self.finish("Terminated", "ended with status 0")
            return
        if policy == "never":
            self.finish("Failed", why)
            return
        t = time.time()
        self.times = [x for x in self.times if 0 <= t - x <= seconds(r.get("window") or "10m")]
        if len(self.times) >= r.get("maxAttempts", 5):
            self.finish("Failed", "%s; gave up after %d restarts" % (why, len(self.times)))
            return
        self.times.append(t)
        self.restarts += 1
        wait = min(seconds(r.get("backoff") or "500ms") * 2 ** (len(self.times) - 1), seconds(r.get("maxBackoff") or "1m"))
        self.phase, self.reason, self.retry_at = "BackOff", why, clock() + wait
        self.save()

    def overdue(self):
        """Whether it must not run because the cluster has been out of touch for too long: a replacement may run elsewhere."""
        on = self.spec.get("onDisconnect")
        if not isinstance(on, dict) or self.agent.connected:
            return False
        contact = self.agent.contact
        return contact is None or clock() - contact > seconds(on.get("stopAfter"))

    def cut_off(self):
        if self.phase == "Running" and self.asked is None and self.overdue():
            self.state, self.phase, self.reason = "WorkerScheduled", "CutOff", "stopped by its worker, which is out of touch with the cluster"
            self.stop("cut off")
            self.save()


if __name__ == "__main__":
    supervise(sys.argv[1])
