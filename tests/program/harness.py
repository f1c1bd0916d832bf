"""What the program tests share: where the programs and models are, how they are run, what counts as broken.

Programs: WEIR_BIN and WEIR_REFERENCE, else `weir` and `reference` in WEIR_BUILD_DIR, else in the checkout's build/.
Models: a generated set (kept beside the program, made anew when the generator changes); further ones from WEIR_MODELS, a folder
(default: shared/models beside the checkout); SmolLM2 from WEIR_SMOLLM2, else where tools/setup/model.sh keeps it.  What is
missing is skipped by name.  A run that ends by a signal or does not end is a failure of the test, whatever the test expected.
"""
import atexit
import functools
import glob
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
GENERATOR = os.path.join(ROOT, "tests", "models")
sys.path.insert(0, GENERATOR)
import gguf_file  # noqa: E402
import make_models  # noqa: E402

SANITIZED = bool(os.environ.get("WEIR_SANITIZE"))  # a sanitizer's shadow memory is in no budget
FULL = os.environ.get("WEIR_TEST_FULL") == "1"
TIMEOUT_SECONDS = 120
EXIT_DONE, EXIT_FAILED, EXIT_USAGE, EXIT_BUDGET, EXIT_FORMAT = range(5)
MIB = 1 << 20


def _cache_folder():
    """What programs remember between runs goes here: the user's own is neither read nor filled with test models."""
    folder = tempfile.mkdtemp(prefix="weir-test-cache-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


CACHE = _cache_folder()


def _program(variable, name):
    folder = os.environ.get("WEIR_BUILD_DIR") or os.path.join(ROOT, "build")
    path = os.environ.get(variable) or os.path.join(folder, name)
    return path if os.access(path, os.X_OK) else None


WEIR = _program("WEIR_BIN", "weir")
REFERENCE = _program("WEIR_REFERENCE", "reference")


def need_programs():
    """Skips the calling test when a program has not been built."""
    for path, variable in ((WEIR, "WEIR_BIN"), (REFERENCE, "WEIR_REFERENCE")):
        if not path:
            raise unittest.SkipTest(f"{variable} is not set and the build folder does not hold the program")


class Result:
    """A finished program: exit code, standard output, standard error."""

    def __init__(self, code, out, err, command):
        self.code, self.out, self.err, self.command = code, out, err, command

    def __str__(self):
        return f"exit {self.code}: {' '.join(self.command)[:400]}\n{self.out[-400:]}\n{self.err[-2000:]}"


def _finish(process, timeout):
    """Output of a program once it has ended, or None when it does not.  Seconds are counted one by one: a machine that was
    suspended for a while must not look like a program that hangs."""
    for _ in range(timeout):
        try:
            return process.communicate(timeout=1)
        except subprocess.TimeoutExpired:
            pass
    process.kill()
    process.communicate()
    return None


def run(command, env=None, timeout=TIMEOUT_SECONDS):
    """Runs a program to its end.  AssertionError when it hangs or is killed by a signal."""
    # Passive: OpenMP threads that spin in barriers make a run fifty times slower when tests share the processors.
    merged = {**os.environ, "GGML_NO_BACKTRACE": "1", "OMP_WAIT_POLICY": "passive", "XDG_CACHE_HOME": CACHE, **(env or {})}
    process = subprocess.Popen(command, env=merged, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    output = _finish(process, timeout)
    if output is None:
        raise AssertionError(f"no end after {timeout} s: {' '.join(command)}")
    result = Result(process.returncode, output[0].decode(errors="replace"), output[1].decode(errors="replace"), command)
    if process.returncode < 0:
        raise AssertionError(f"ended by signal {-process.returncode}: {result}")
    return result


def run_json(command, **more):
    """Runs a program that must succeed and print one JSON object."""
    result = run(command, **more)
    if result.code != EXIT_DONE:
        raise AssertionError(str(result))
    return json.loads(result.out)


def _stamp():
    digest = hashlib.sha256()
    for name in sorted(glob.glob(os.path.join(GENERATOR, "*.py"))):
        with open(name, "rb") as file:
            digest.update(file.read())
    return digest.hexdigest()[:16]


@functools.lru_cache(None)
def generated_models():
    """{name: path} of the generated set.  Made once per version of the generator, complete or not at all."""
    parent = os.path.dirname(os.path.abspath(WEIR)) if WEIR else tempfile.gettempdir()
    folder = os.path.join(parent, "test-models-" + _stamp())
    if not os.path.isdir(folder):
        partial = tempfile.mkdtemp(prefix="test-models-", dir=parent)
        make_models.make_test_set(partial, set(), seed=7)
        try:
            os.rename(partial, folder)
        except OSError:  # another run was faster
            for name in os.listdir(partial):
                os.unlink(os.path.join(partial, name))
            os.rmdir(partial)
    names = list(make_models.TEST_MODELS) + [v[0] for v in make_models.MOE_VARIANTS]
    return {n: sorted(glob.glob(os.path.join(folder, n + ".gguf")) + glob.glob(os.path.join(folder, n + "-00001-of-*.gguf")))[0]
            for n in names}


def given_models():
    """{name: path} of models that are not part of the checkout, and the names of the sources that are not there."""
    folder = os.environ.get("WEIR_MODELS") or os.path.join(os.path.dirname(ROOT), "shared", "models")
    found = {os.path.basename(p)[:-5]: p for p in sorted(glob.glob(os.path.join(folder, "**", "*.gguf"), recursive=True))}
    missing = [] if found else [folder]
    home = os.environ.get("WEIR_ENGINE_HOME") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "weir")
    smol = [os.environ.get("WEIR_SMOLLM2")] if os.environ.get("WEIR_SMOLLM2") else sorted(
        glob.glob(os.path.join(home, "models", "SmolLM2*.gguf")))
    if smol and os.path.exists(smol[0]):
        found["smollm2"] = smol[0]
    else:
        missing.append("SmolLM2")
    return found, missing


@functools.lru_cache(None)
def limits_of(path):
    """(context length, number of tokens) that a model states."""
    numbers = gguf_file.numbers_of(path)
    return numbers["context_length"], numbers.get("tokenizer.ggml.tokens") or numbers["vocab_size"]


def model_bytes(path):
    """Bytes of all shards of a model."""
    stem = path.split("-00001-of-")
    return sum(os.path.getsize(p) for p in (glob.glob(stem[0] + "-*-of-" + stem[1]) if len(stem) == 2 else [path]))


def prompt_of(path, count):
    """`count` token ids, the same for every run."""
    _, vocab = limits_of(path)
    rng = random.Random(count)
    return ",".join(str(rng.randrange(3, vocab)) for _ in range(count))


@functools.lru_cache(None)
def reference(path, prompt, tokens, ctx, threads, batch=512):
    """What the engine alone gives: the reference's JSON."""
    return run_json([REFERENCE, path, "--tokens", prompt, "-n", str(tokens), "-t", str(threads), "--ctx", str(ctx),
                     "--batch", str(batch)])


@functools.lru_cache(None)
def least_budget(path, ctx, threads=2, batch=512, io="auto"):
    """The least budget in bytes that `weir plan` names.  The budget that it is asked about has no part in that."""
    return run_json([WEIR, "plan", path, "-M", "64G", "-c", str(ctx), "-t", str(threads), "--batch", str(batch), "--io", io,
                     "--no-measure", "--json"])["least_budget_bytes"]


def size(count):
    """Bytes as an argument of -M, rounded up."""
    return f"{-(-count // 1024)}K"


def weir_command(path, budget, prompt, tokens, ctx, threads, *more):
    """`weir run` of raw token ids, greedy, with the logits hash in a JSON report."""
    return [WEIR, "run", path, "-M", size(budget), "--prompt-tokens", prompt, "-n", str(tokens), "-c", str(ctx), "-t",
            str(threads), "--temp", "0", "--ignore-eos", "--raw", "--logits-hash", "--json", *more]
