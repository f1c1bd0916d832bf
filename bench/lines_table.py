"""The lines of the table of goals: each compares what a user would choose between, in one session, with `weir bench` where it can.

`weir bench` runs everything in turns, in a memory limit, with the drive measured beside each run and all logits compared; these
lines only say what is run and what it is held against.  What a build or a machine lacks makes a line unavailable, by name.
"""
import contextlib
import os
import subprocess
import tempfile
import time

import cgroup
import context
import figures
import machine
import measure

GIB, MIB = 1 << 30, 1 << 20
DRAWN = ("--temp", "1", "--seed", "1")  # drawn tokens: the likeliest ones repeat themselves
NOISE = 0.02  # two medians of the same thing differ by as much
THROTTLED_BYTES_PER_SECOND = (250 * 10**6, 600 * 10**6)
HELD_BACK_US = 2000
PEER_STREAM_BYTES = 512 * MIB
PEER_OWN_BYTES = 1280 * MIB  # Python, PyTorch and what it computes with
TRACE_POINTS = 0.005
PACK_COPY_BYTES = 4 * GIB


def _prompt_words(bench, model, count=8):
    return ["--prompt-tokens", bench.prompt(model, count)]


def _run_bench(bench, model, budgets, *more, env=None, before=()):
    """The JSON of `weir bench`, also when logits differ or a run failed: the rows say so."""
    memory = ",".join(f"{size // 1024}K" for size in budgets)
    command = [*before, bench.weir, "bench", model, "-M", memory, "-n", str(bench.options.tokens), "-r", str(bench.options.runs),
               "--timeout", str(bench.options.timeout), "--json", *_prompt_words(bench, model), *more]
    cost = measure.run(command, env=env, timeout=bench.options.timeout * 40)
    if cost.code not in (0, 1):
        raise measure.Failed(f"exit {cost.code}: {' '.join(command)[:300]}\n{cost.err[-1500:]}")
    found = cost.json()
    for row in found["rows"]:
        for run in row["runs"]:
            if run["error"] and not run["timed_out"]:
                raise measure.Failed(f"{row['name']}: {run['error']}")
    return found


def _row(found, kind="weir", options=None):
    return next(row for row in found["rows"] if row["kind"] == kind and row["options"] == options)


def _sheet(bench, line, model, size, **more):
    return figures.Sheet(line, model=os.path.basename(model), memory=figures.show(size, "bytes") if size else "all it takes",
                         tokens=bench.options.tokens, runs=bench.options.runs, **more)


def _pack_of(model):
    return os.path.splitext(model)[0] + ".weir"


@contextlib.contextmanager
def _packed(bench, model):
    """The model's pack beside it, made for the time being when it is not there yet.  None when it cannot be made."""
    path = _pack_of(model)
    if os.path.exists(path):
        yield path
        return
    try:
        cost = measure.run([bench.weir, "pack", model], timeout=bench.options.timeout)
        yield path if cost.code == 0 and os.path.exists(path) else None
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)


def _add_streamed(sheet, name, row):
    sheet.add(f"{name}: generation", row["tokens_per_second"], "tokens/s")
    sheet.add(f"{name}: read per token", row["bytes_per_token"], "bytes")
    sheet.add(f"{name}: hit rate", row["hit_rate"])
    sheet.add(f"{name}: drive beside it", row["drive_bytes_per_second"], "bytes/s")
    sheet.add(f"{name}: speed to bound", row["to_bound"], "", 0.95, ">=")
    sheet.add(f"{name}: p95 of token times to their median", row["token_seconds_p95"] / row["token_seconds_median"], "", 2)
    sheet.add(f"{name}: times the limit was hit", row["limit_hits"], "", 0, "==")


def bound(bench):
    """A mixture of experts in 4 GiB, packed and not: 0.95 of the bound, p95 within twice the median, 30 times plain mmap."""
    model = bench.model("qwen3-30b-a3b")
    for size in bench.budgets(4 * GIB):
        with _packed(bench, model) as pack:
            more = ["--variants=--no-pack"] if pack else []
            found = _run_bench(bench, model, [size], *DRAWN, "--no-resident", "--mmap-tokens",
                               str(bench.options.mmap_tokens), *more)
        sheet = _sheet(bench, "bound", model, size, cache="cold", limit=found["limit"]["method"])
        plain = _row(found, options="--no-pack") if pack else _row(found)
        _add_streamed(sheet, "unpacked", plain)
        if pack:
            _add_streamed(sheet, "packed", _row(found))
            sheet.add("packed to unpacked", _row(found)["tokens_per_second"] / plain["tokens_per_second"], "", 1 - NOISE, ">=")
        else:
            sheet.note("packed: not measured, no pack could be made (see `weir pack`)")
        mapped = next((row for row in found["rows"] if row["kind"] == "mmap"), None)
        sheet.add("llama.cpp's mmap in the same limit", mapped and mapped["tokens_per_second"], "tokens/s")
        sheet.add("times as fast as mapped", plain["to_mmap"], "", 30, ">=")
        sheet.add("logits equal in all runs", found["logits_equal"], "", True, "==")
        yield sheet


def _peer(bench, model, size, resident):
    """neurostream on the same model in the same limit: its JSON."""
    script = os.path.join(context.ROOT, "tools", "setup", "peers.sh")
    folder = os.path.join(bench.options.build, "peers")
    done = subprocess.run(["sh", script, folder], stdout=subprocess.PIPE, check=False)
    if done.returncode:
        raise context.Unavailable("the programs to compare with could not be installed (tools/setup/peers.sh)")
    machine.make_cold(model)
    command = [done.stdout.decode().strip(), os.path.join(context.ROOT, "bench", "peer_neurostream.py"), model, "--tokens",
               bench.prompt(model, 4), "-n", str(bench.options.mmap_tokens), "--stream", str(PEER_STREAM_BYTES), "--resident",
               str(resident), "-t", str(bench.options.threads)]
    return measure.run_json(command, limit=size, timeout=bench.options.timeout)


def neurostream(bench):
    """Against the PyPI package neurostream 0.2.1 with the same memory, on the same model: 20 times as fast."""
    bench.need_cgroup()
    model = bench.model("qwen3-30b-a3b")
    for size in bench.budgets(4 * GIB):
        sheet = _sheet(bench, "neurostream", model, size, cache="cold")
        found = _run_bench(bench, model, [size], "--no-resident", "--no-mmap")
        speed = sheet.add("weir", _row(found)["tokens_per_second"], "tokens/s")
        best = 0
        for name, resident in (("its defaults", 0), ("weights kept in what is left", max(size - PEER_OWN_BYTES - PEER_STREAM_BYTES, 0))):
            result, cost = _peer(bench, model, size, resident)
            sheet.add(f"neurostream, {name}", result["tokens_per_second"], "tokens/s")
            sheet.add(f"neurostream, {name}: peak of its group", cost.group["peak_bytes"], "bytes")
            best = max(best, result["tokens_per_second"])
        sheet.add("times as fast as the better of the two", speed / best if best else None, "", 20, ">=")
        sheet.note(f"neurostream: streaming buffers of {figures.show(PEER_STREAM_BYTES, 'bytes')}; it runs on the processor, as weir does")
        yield sheet


def policies(bench):
    """Hit rates on recorded routing: `auto` within half a point of the best of LRU and LFU per layer, at four budgets."""
    folder = bench.options.traces or os.path.join(os.path.dirname(context.ROOT), "shared", "traces")
    names = sorted(n for n in os.listdir(folder) if n.endswith(".route.csv")) if os.path.isdir(folder) else []
    if not names:
        raise context.Unavailable(f"{folder} holds no traces (*.route.csv): name a folder with --traces")
    for name in names:
        found = measure.run_json([bench.weir, "simulate", os.path.join(folder, name), "--json"])[0]
        for trace in found["traces"]:
            yield _policy_sheet(name, trace)


def _policy_sheet(name, trace):
    sheet = figures.Sheet("policies", trace=name, tokens=trace["tokens"], experts=trace["experts"])
    rates = {(r["policy"], r["budget_percent"]): r for r in trace["results"]}
    if not any(policy == "auto" for policy, _ in rates):
        raise context.Unavailable("this build's `weir simulate` has no policy auto")
    for percent in sorted({p for _, p in rates}):
        own = rates["auto", percent]["hit_rate"]
        best = max(rates[policy, percent]["hit_rate"] for policy in ("lru", "lfu"))
        sheet.add(f"{percent:g} %: hits, auto", own)
        sheet.add(f"{percent:g} %: hits, best of lru and lfu per layer", best)
        sheet.add(f"{percent:g} %: auto below that", max(best - own, 0.0), "", TRACE_POINTS)
        sheet.add(f"{percent:g} %: of the gap to Belady closed (aim 0.33)", rates["auto", percent]["gap_closed"])
    return sheet


def _drives(model):
    """(name, what starts a command under that drive, its environment): as it is, throttled, each read held back."""
    yield "as it is", contextlib.nullcontext([]), None
    for rate in THROTTLED_BYTES_PER_SECOND:
        yield f"throttled to {figures.show(rate, 'bytes/s')}", cgroup.throttled(model, rate), None
    yield f"reads held back {HELD_BACK_US} us", contextlib.nullcontext([]), {"WEIR_FAULT": f"latency-us:{HELD_BACK_US}"}


def lookahead(bench):
    """Look-ahead is never more than 2 % slower than doing without, on any drive; the gain where there is one."""
    model = bench.model("qwen3-30b-a3b")
    for size in bench.budgets(3 * GIB, 4 * GIB, 8 * GIB):
        sheet = _sheet(bench, "lookahead", model, size, cache="cold")
        for name, drive, env in _drives(model):
            try:
                with drive as before:
                    found = _run_bench(bench, model, [size], *DRAWN, "--no-resident", "--no-mmap", "--variants=--no-lookahead",
                                       env=env, before=before)
            except cgroup.Unusable as why:
                sheet.note(f"{name}: not measured: {why}")
                continue
            on, off = _row(found), _row(found, options="--no-lookahead")
            sheet.add(f"{name}: with", on["tokens_per_second"], "tokens/s")
            sheet.add(f"{name}: without", off["tokens_per_second"], "tokens/s")
            sheet.add(f"{name}: with to without", on["tokens_per_second"] / off["tokens_per_second"], "", 1 - NOISE, ">=")
            sheet.add(f"{name}: logits equal", found["logits_equal"], "", True, "==")
        yield sheet


def whole(bench):
    """Everything fits: 0.99 of llama.cpp's own speed, in the same program with the same sampling."""
    model = bench.model("moe-1b")
    size = 2 * sum(os.path.getsize(path) for path in machine.shards_of(model)) + GIB
    found = _run_bench(bench, model, [size], "--no-mmap")
    sheet = _sheet(bench, "whole", model, None, cache="cold")
    sheet.add("weir", _row(found)["tokens_per_second"], "tokens/s")
    sheet.add("llama.cpp, every weight read into memory", _row(found, "resident")["tokens_per_second"], "tokens/s")
    sheet.add("weir to llama.cpp", _row(found)["to_resident"], "", 0.99, ">=")
    sheet.add("logits equal", found["logits_equal"], "", True, "==")
    yield sheet


def busy(bench):
    """Beside a process that keeps a core busy, `-t auto` keeps four fifths of its quiet speed when the drive is the limit."""
    model = bench.model("qwen3-30b-a3b")
    for size in bench.budgets(4 * GIB):
        sheet = _sheet(bench, "busy", model, size, threads="auto", cache="cold")
        quiet, beside = [], []
        once = bench.options.runs
        bench.options.runs = 1
        try:
            for _ in range(once):  # in turns
                quiet.append(_quick_speed(bench, model, size))
                with measure.neighbour():
                    beside.append(_quick_speed(bench, model, size))
        finally:
            bench.options.runs = once
        still = sheet.spread("quiet", quiet, "tokens/s")
        sheet.add("share kept", sheet.spread("beside a busy process", beside, "tokens/s") / still, "", 0.8, ">=")
        yield sheet


def _quick_speed(bench, model, size):
    try:
        found = _run_bench(bench, model, [size], *DRAWN, "--no-resident", "--no-mmap", "-t", "auto")
    except measure.Failed as why:
        if "--threads" in str(why) and "exit 2" in str(why):
            raise context.Unavailable("this build has no -t auto") from why
        raise
    return _row(found)["tokens_per_second"]


def exact(bench):
    """Equal logits and no limit met with every combination of pack, policy and look-ahead."""
    model = bench.model("moe-1b")
    for size in bench.budgets(300 * MIB):
        with _packed(bench, model) as pack:
            sets = [f"{p} {l} {k}".strip() for p in ("--policy auto", "--policy lru", "--policy lfu", "--policy lru-global")
                    for l in ("", "--no-lookahead") for k in (("", "--no-pack") if pack else ("",))]
            found = _run_bench(bench, model, [size], "--no-mmap", "-c", "1024", "--variants", ";".join(sets))
        sheet = _sheet(bench, "exact", model, size, packed=bool(pack))
        sheet.add("combinations", len(sets))
        sheet.add("logits equal in all of them, and to llama.cpp", found["logits_equal"], "", True, "==")
        streamed = [row for row in found["rows"] if row["kind"] == "weir"]
        sheet.add("largest peak", max(row["peak_memory_bytes"] for row in streamed), "bytes", size)
        sheet.add("times a limit was hit", sum(row["limit_hits"] or 0 for row in streamed), "", 0, "==")
        yield sheet


def _copy_rate(folder, model):
    """Bytes per second that the drive reads and writes at once: both directly, by two processes."""
    count = min(os.path.getsize(model), PACK_COPY_BYTES) // (8 * MIB)
    with tempfile.NamedTemporaryFile(dir=folder, prefix="copy-") as target:
        machine.make_cold(model)
        start = time.monotonic()
        both = [subprocess.Popen(["dd", *words, "bs=8M", f"count={count}"], stderr=subprocess.DEVNULL) for words in (
            (f"if={model}", "of=/dev/null", "iflag=direct"), ("if=/dev/zero", f"of={target.name}", "oflag=direct", "conv=fsync"))]
        codes = [process.wait() for process in both]
        if any(codes):
            raise context.Unavailable(f"dd cannot read {model} or write beside it directly")
        return count * 8 * MIB / (time.monotonic() - start)


def pack(bench):
    """`weir pack` and `weir verify` at the drive's rate: nine tenths of what it reads and writes at once."""
    model = bench.model("dense-7b")
    whole_bytes = sum(os.path.getsize(path) for path in machine.shards_of(model))
    if whole_bytes > 0.9 * os.statvfs(bench.work).f_bavail * os.statvfs(bench.work).f_frsize:
        raise context.Unavailable(f"a copy of {model} takes {whole_bytes} bytes")
    sheet = figures.Sheet("pack", model=os.path.basename(model), runs=bench.options.runs, cache="cold")
    out = os.path.join(bench.work, "measured.weir")
    rates, copies, verified = [], [], []
    try:
        for _ in range(bench.options.runs):
            copies.append(_copy_rate(bench.work, model))
            with contextlib.suppress(OSError):
                os.unlink(out)
            machine.make_cold(model)
            rates.append(_timed(bench, ["pack", model, "-o", out], whole_bytes))
            machine.make_cold(out)
            verified.append(_timed(bench, ["verify", out], os.path.getsize(out)))
    finally:
        with contextlib.suppress(OSError):
            os.unlink(out)
    copy = sheet.spread("the drive, reading and writing at once", copies, "bytes/s")
    sheet.add("pack to that", sheet.spread("pack", rates, "bytes/s") / copy, "", 0.9, ">=")
    sheet.spread("verify", verified, "bytes/s")
    sheet.add("drive, reading", bench.drive_rate(model), "bytes/s")
    yield sheet


def _timed(bench, words, count):
    cost = measure.run([bench.weir, *words], timeout=bench.options.timeout)
    if cost.code:
        if "no command" in cost.err or "this build has no" in cost.err:
            raise context.Unavailable(f"this build has no `weir {words[0]}`")
        raise measure.Failed(f"weir {words[0]}: exit {cost.code}: {cost.err[-500:]}")
    return count / cost.seconds
