"""The lines about speed.

What the drive can do is measured with `weir disk` right before and right after the runs that it is compared with, and never
derived from them; the mean of the two is used, and both are shown.
"""
import contextlib
import os
import statistics

import cgroup
import figures
import machine
import measure

GIB, MIB = 1 << 30, 1 << 20
SHORT_PROMPT = 8
MMAP_PROMPT = 4


class _Rate:
    """The drive's rate around a piece of work."""

    def __init__(self, bench, model, sheet):
        self.bench, self.model, self.sheet = bench, model, sheet

    def __enter__(self):
        self.before = self.bench.drive_rate(self.model)
        return self

    def __exit__(self, failure, *_):
        if failure is None:
            self.after = self.bench.drive_rate(self.model)
            self.value = (self.before + self.after) / 2
            self.sheet.add("drive before", self.before, "bytes/s")
            self.sheet.add("drive after", self.after, "bytes/s")


def _sheet(bench, line, model, budget=None, **more):
    memory = figures.show(budget, "bytes") if budget else "all it takes"
    return figures.Sheet(line, model=os.path.basename(model), memory=memory, threads=bench.options.threads, **more)


def _cold_runs(bench, model, budget, limit, prompt_tokens, tokens, runs=None, more=()):
    """[(report, Cost)] of several cold runs."""
    done = []
    for _ in range(runs or bench.options.runs):
        machine.make_cold(model)
        done.append(bench.run_weir(model, budget, bench.prompt(model, prompt_tokens), tokens, limit=limit, more=more))
    return done


def _of(runs, *keys):
    """One number out of each run's report."""
    values = []
    for value, _ in runs:
        for key in keys:
            value = value[key]
        values.append(value)
    return values


def _ratios(runs, drive_rate):
    """Each run's speed over the bound: the slower of its own compute and of its bytes at a drive rate."""
    return [report["tokens_per_second"] * max(report["bound"]["compute_seconds"], report["bytes_per_token"] / drive_rate)
            for report, _ in runs]


def _mmap_speed(bench, model, limit):
    """Tokens per second of the engine alone on the mapped file, in a cgroup of the same size."""
    machine.make_cold(model)
    result, _ = bench.run_reference(model, bench.prompt(model, MMAP_PROMPT), bench.options.mmap_tokens, limit=limit)
    return result["tokens_per_second"]


SAMPLED = ("--temp", "0.8", "--seed", "1")


def _expert_runs(bench, sheet, model, size, kind, more, judged):
    """Cold runs of one kind of text, and what they reached of the bound; returns the median speed."""
    with _Rate(bench, model, sheet) as rate:
        runs = _cold_runs(bench, model, size, size, SHORT_PROMPT, bench.options.tokens, more=more)
    speed = sheet.spread(f"{kind}: generation", _of(runs, "tokens_per_second"), "tokens/s")
    sheet.spread(f"{kind}: read per token", _of(runs, "bytes_per_token"), "bytes")
    sheet.spread(f"{kind}: compute per token", _of(runs, "bound", "compute_seconds"), "s")
    sheet.add(f"{kind}: hit rate", statistics.median(_of(runs, "hit_rate")))
    target = (0.9, ">=") if judged else ()
    sheet.add(f"{kind}: speed to bound, from this drive rate", statistics.median(_ratios(runs, rate.value)), "", *target)
    sheet.add(f"{kind}: speed to bound, as reported", statistics.median(_of(runs, "bound", "ratio")), "", *target)
    return speed


def experts(bench):
    """A mixture of experts: nine tenths of what drive and processor allow, and twenty times plain mmap."""
    bench.need_cgroup()
    model = bench.model("qwen3-30b-a3b")
    for size in bench.budgets(4 * GIB):
        sheet = _sheet(bench, "experts", model, size, tokens=bench.options.tokens, cache="cold")
        speed = _expert_runs(bench, sheet, model, size, "sampled", SAMPLED, True)
        _expert_runs(bench, sheet, model, size, "likeliest token", (), False)
        mapped = sheet.add("engine alone, mapped, in the same cgroup", _mmap_speed(bench, model, size), "tokens/s")
        sheet.add("times as fast as mapped", speed / mapped if mapped else None, "", 20, ">=")
        sheet.note("the likeliest token repeats itself: its first tokens wait for the drive and the later ones compute, so that a "
                   "bound made of averages lies above what any order of work reaches; shown, not judged")
        yield sheet


def _dense_need(bench, model):
    """Bytes of weights that each token uses: all but the embedding, of which it reads a row, unless it is the output too."""
    tensors = bench.tensors(model)
    tied = not any(t["name"] == "output.weight" for t in tensors)
    return sum(t["bytes"] for t in tensors if tied or t["name"] != "token_embd.weight")


def dense(bench):
    """A dense model that does not fit: what is missing is read once a token, at the drive's rate."""
    bench.need_cgroup()
    model = bench.model("dense-7b")
    for size in bench.budgets(2 * GIB):
        sheet = _sheet(bench, "dense", model, size, tokens=bench.options.tokens, cache="cold")
        with _Rate(bench, model, sheet) as rate:
            runs = _cold_runs(bench, model, size, size, SHORT_PROMPT, bench.options.tokens)
        memory = runs[0][0]["memory"]
        room = size - memory["kv"] - memory["compute"] - memory["other"]
        missing = sheet.add("weights that do not fit", max(_dense_need(bench, model) - room, 0), "bytes")
        if not missing:
            raise measure.Failed(f"{model} fits into {size} bytes: give a smaller --memory")
        read = sheet.spread("read per token", _of(runs, "bytes_per_token"), "bytes")
        sheet.add("read to what does not fit", read / missing, "", 1.03)
        token = sheet.spread("time per token", [1 / v for v in _of(runs, "tokens_per_second")], "s")
        least = sheet.add("what does not fit at the drive's rate", missing / rate.value, "s")
        sheet.add("time to that", token / least, "", 1.1)
        sheet.add("generation", statistics.median(_of(runs, "tokens_per_second")), "tokens/s")
        sheet.note("room for weights: the budget less KV cache, compute buffers and the process itself, as reported")
        yield sheet


def _expert_bytes(bench, model):
    return sum(t["bytes"] for t in bench.tensors(model) if "_exps.weight" in t["name"])


def prompt(bench):
    """A prompt: every expert read at most once per batch, in the time that drive or processor needs."""
    bench.need_cgroup()
    model = bench.model("qwen3-30b-a3b")
    count = bench.options.prompt
    for size in bench.budgets(4 * GIB):
        sheet = _sheet(bench, "prompt", model, size, prompt=count, cache="cold")
        with _Rate(bench, model, sheet) as rate:
            runs = _cold_runs(bench, model, size, size, count, 1)
        experts_bytes = _expert_bytes(bench, model)
        # The start is the same in both; the one token of the short run reads its own experts, a token cycle at most.
        _, single = _cold_runs(bench, model, size, size, 1, 1, runs=1)[0]
        start = single.drive_bytes - bench.plan(model, size, count + 1)["token_cycle_bytes"]
        batches = -(-count // 512)
        read = sheet.spread("read during the prompt", [cost.drive_bytes - start for _, cost in runs], "bytes")
        sheet.add("all experts, once a batch", experts_bytes * batches, "bytes")
        sheet.add("read to that", read / (experts_bytes * batches), "", 1.02)
        took = sheet.spread("prompt", _of(runs, "prompt_seconds"), "s")
        resident = sheet.add("prompt of the engine alone, resident", _resident_prompt(bench, model, count), "s")
        least = sheet.add("the slower of drive and processor", max(read / rate.value, resident), "s")
        sheet.add("prompt to that", took / least, "", 1.15)
        sheet.note("bytes that any read brings count, the drive's alignment included: hence 1.02")
        yield sheet


def _resident_prompt(bench, model, count):
    """Seconds of the engine alone with the file in the page cache, where that is possible."""
    whole = sum(os.path.getsize(p) for p in machine.shards_of(model))
    if whole * 1.1 > machine.available_bytes():
        raise measure.Failed(f"resident needs {whole} bytes of memory; use a smaller --shape here")
    machine.make_warm(model)
    text = bench.prompt(model, count)
    runs = [bench.run_reference(model, text, 1)[0]["prompt_seconds"] for _ in range(bench.options.runs)]
    machine.make_cold(model)
    return statistics.median(runs)


def fits(bench):
    """A model that fits: not slower than llama.cpp itself.  Runs of both take turns, on a warm page cache."""
    model = bench.model("moe-1b")
    count, tokens = bench.options.prompt, bench.options.tokens
    sheet = _sheet(bench, "fits", model, prompt=count, tokens=tokens, cache="warm")
    machine.make_warm(model)
    speeds = {"weir": [], "plain": [], "repacked": []}
    for _ in range(bench.options.runs):
        for kind, more in (("weir", ()), ("plain", ("--plain", "read"))):
            report, _ = bench.run_weir(model, None, bench.prompt(model, count), tokens, more=more)
            speeds[kind].append({"prompt": report["prompt_tokens_per_second"], "generation": report["tokens_per_second"]})
        speeds["repacked"].append(bench.run_llama_bench(model, count, tokens, True)[0])
    for what in ("prompt", "generation"):
        own = {kind: sheet.spread(f"{what}, {kind}", [s[what] for s in runs], "tokens/s") for kind, runs in speeds.items()}
        sheet.add(f"{what}, weir to llama.cpp in the same program", own["weir"] / own["plain"], "", 0.97, ">=")
        sheet.add(f"{what}, weir to llama-bench with repacked weights", own["weir"] / own["repacked"])
    sheet.note("plain: `weir run --plain read`, llama.cpp alone with the same sampling; repacked weights round otherwise, so an "
               "exact run cannot use them, and llama-bench samples nothing: shown, not judged")
    yield sheet


def _speeds_beside(runs, speed):
    """Medians of a speed, quiet and beside a busy process, runs of both taking turns."""
    quiet, busy = [], []
    for _ in range(runs):
        quiet.append(speed())
        with measure.neighbour():
            busy.append(speed())
    return statistics.median(quiet), statistics.median(busy)


def neighbour(bench):
    """A busy process on one core: streaming loses no greater share of its speed than the resident engine does."""
    model = bench.model("qwen3-30b-a3b")
    tokens, text = bench.options.tokens, bench.prompt(model, SHORT_PROMPT)
    for size in bench.budgets(4 * GIB):
        limit = cgroup.UNLIMITED if cgroup.why_not() else size
        sheet = _sheet(bench, "neighbour", model, size, tokens=tokens, cache="cold for streaming, warm for resident")

        def streamed():
            machine.make_cold(model)
            return bench.run_weir(model, size, text, tokens, limit=limit)[0]["tokens_per_second"]

        def resident():
            return bench.run_reference(model, text, tokens)[0]["tokens_per_second"]

        lost = {}
        for name, speed in (("streamed", streamed), ("resident", resident)):
            with contextlib.ExitStack() as after:
                if name == "resident":
                    machine.make_warm(model)
                    after.callback(machine.make_cold, model)
                quiet, busy = _speeds_beside(bench.options.runs, speed)
            sheet.add(f"{name}, quiet", quiet, "tokens/s")
            sheet.add(f"{name}, beside a busy process", busy, "tokens/s")
            lost[name] = 1 - busy / quiet
        sheet.add("share lost, resident", lost["resident"])
        sheet.add("share lost, streamed", lost["streamed"], "", lost["resident"])
        yield sheet
