"""What every line of measurement uses: the programs, the models, the drive's rate, the common ways to run them."""
import os
import random
import shutil
import subprocess
import sys

import cgroup
import machine
import measure

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
GENERATOR = os.path.join(ROOT, "tests", "models")
sys.path.insert(0, GENERATOR)
import gguf_file  # noqa: E402
import make_models  # noqa: E402
import shapes  # noqa: E402

DISK_SECONDS = 4
SPARE_BYTES = 2 << 30  # left free on the drive when a model is written


class Unavailable(Exception):
    """The line cannot be measured here; the text says why."""


def bytes_of(text):
    """A size as weir reads it: K, M, G and T are powers of 1024, KB and so on powers of 1000."""
    number, unit = text, ""
    while number and not number[-1].isdigit():
        number, unit = number[:-1], number[-1] + unit
    powers = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
    base = 1000 if len(unit) == 2 and unit[1] == "B" else 1024
    letter = unit.removesuffix("iB") if unit.endswith("iB") else unit.removesuffix("B")
    if letter.upper() not in powers or not number:
        raise ValueError(text)
    return int(float(number) * base ** powers[letter.upper()])


class Bench:
    """One invocation: options, programs, models."""

    def __init__(self, options):
        self.options = options
        self.work = os.path.realpath(options.work or os.path.join(options.build, "bench"))
        os.makedirs(self.work, exist_ok=True)
        self.weir = self._need(os.path.join(options.build, "weir"))
        self._version = None

    @staticmethod
    def _need(path):
        if not os.access(path, os.X_OK):
            raise SystemExit(f"{path} is not there: build weir first, or name the folder with --build")
        return path

    def reference_program(self):
        return self._optional(os.path.join(self.options.build, "reference"))

    def plugin(self):
        return self._optional(os.path.join(self.options.build, "libggml-weir.so"), os.R_OK)

    def preload(self):
        """The object that keeps stock programs from reading a whole model at their start, or None."""
        path = os.path.join(self.options.build, "libweir-mmap-preload.so")
        return path if os.access(path, os.R_OK) else None

    def engine_program(self, name):
        """(path of one of llama.cpp's own programs, its environment)."""
        folder = self.options.engine or self._engine_of_setup()
        path = self._optional(os.path.join(folder, "bin", name))
        return path, {"LD_LIBRARY_PATH": os.path.join(folder, "lib")}

    @staticmethod
    def _optional(path, mode=os.X_OK):
        if not os.access(path, mode):
            raise Unavailable(f"{path} is not there")
        return path

    @staticmethod
    def _engine_of_setup():
        script = os.path.join(ROOT, "tools", "setup", "engine.sh")
        done = subprocess.run(["sh", script, "--where"], capture_output=True, check=False)
        if done.returncode:
            raise Unavailable("no engine was found: name its folder with --engine")
        return done.stdout.decode().strip()

    def need_cgroup(self):
        reason = cgroup.why_not()
        if reason:
            raise Unavailable(reason)

    def budgets(self, *default):
        return self.options.memory or list(default)

    def describe(self):
        """What goes with every stored figure."""
        if self._version is None:
            done = subprocess.run([self.weir, "--version"], capture_output=True, check=False)
            self._version = done.stdout.decode().strip()
        return {**machine.describe(self.work), "weir": self._version, "commit": machine.commit_of(ROOT)}

    # Models

    def model(self, shape):
        """Path of a model: --model, or one of --shape or `shape`, written when it is not there yet."""
        if self.options.model:
            return self.options.model
        shape = self.options.shape or shape
        mark = "-text" if self.options.tokenizer else ""
        path = os.path.join(self.work, shape + mark + ".gguf")
        if not os.path.exists(path):
            self._write(path, shapes.NAMED[shape])
        return path

    def _write(self, path, shape):
        entries, tensors = make_models.parts_of(shape, self.options.tokenizer)
        size = sum(t.size for t in tensors)
        free = shutil.disk_usage(self.work).free
        if free < size + SPARE_BYTES:
            raise Unavailable(f"{path} takes {size} bytes, and {free} are free")
        print(f"writing {path} ({size / 1e9:.1f} GB)", file=sys.stderr, flush=True)
        gguf_file.write(path, entries, tensors, make_models.Source(7).pieces)
        machine.make_cold(path)

    def tensors(self, model):
        """The model's tensors as `weir inspect` lists them."""
        return measure.run_json([self.weir, "inspect", "--json", model])[0]["tensors"]

    def prompt(self, model, count):
        """Token ids as one argument."""
        numbers = gguf_file.numbers_of(model)
        vocab = numbers.get("tokenizer.ggml.tokens") or numbers["vocab_size"]
        rng = random.Random(count)
        return ",".join(str(rng.randrange(3, vocab)) for _ in range(count))

    # Programs

    def drive_rate(self, model):
        """Bytes per second that the drive gives now, to reads as weir makes them: never a remembered figure."""
        command = [self.weir, "disk", model, "--no-cache", "--seconds", str(DISK_SECONDS), "--json"]
        return measure.run_json(command)[0]["bytes_per_second"]

    def plan(self, model, budget, ctx):
        """What `weir plan` says about a model and a budget."""
        return measure.run_json([self.weir, "plan", model, "-M", f"{budget // 1024}K", "-c", str(ctx), "--json"])[0]

    def run_weir(self, model, budget, prompt, tokens, limit=cgroup.UNLIMITED, threads=None, ctx=None, more=()):
        """(report, Cost) of `weir run` with raw token ids, greedy."""
        ctx = ctx or prompt.count(",") + 1 + tokens
        command = [self.weir, "run", model, "--prompt-tokens", prompt, "-n", str(tokens), "-c", str(ctx), "-t",
                   str(threads or self.options.threads), "--temp", "0", "--raw", "--ignore-eos", "--json", *more]
        command += ["-M", f"{budget // 1024}K"] if budget else ["-M", "auto"]
        return measure.run_json(command, limit=limit, timeout=self.options.timeout)

    def run_reference(self, model, prompt, tokens, limit=cgroup.UNLIMITED, threads=None, more=()):
        """(JSON, Cost) of the engine alone."""
        command = [self.reference_program(), model, "--tokens", prompt, "-n", str(tokens), "-t",
                   str(threads or self.options.threads), *more]
        return measure.run_json(command, limit=limit, timeout=self.options.timeout)

    def run_llama_bench(self, model, prompt_tokens, tokens, repack, more=(), env=None):
        """({prompt, generation} tokens per second, Cost) of llama.cpp's own measuring program."""
        program, own = self.engine_program("llama-bench")
        command = [program, "-m", model, "-p", str(prompt_tokens), "-n", str(tokens), "-r", "1", "-t",
                   str(self.options.threads), "--repack", str(int(repack)), "-o", "json", *more]
        rows, cost = measure.run_json(command, env={**own, **(env or {})}, timeout=self.options.timeout)
        speed = {"prompt" if row["n_prompt"] else "generation": row["avg_ts"] for row in rows}
        return speed, cost
