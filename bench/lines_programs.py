"""The lines about programs: llama.cpp's own with the plugin, and the forecast."""
import contextlib
import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request

import figures
import machine
import measure

GIB, MIB = 1 << 30, 1 << 20
START_SECONDS_MAX = 300
FORECAST_ERROR_MAX = 0.15


def _free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def _ask(url, body=None, timeout=600):
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=timeout) as answer:
        return json.load(answer)


def _wait_for(process, url):
    """Until the server answers that it is healthy."""
    until = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < until:
        if process.poll() is not None:
            raise measure.Failed(f"llama-server ended with {process.returncode} before it answered")
        with contextlib.suppress(OSError, urllib.error.URLError, ValueError):
            if _ask(url + "/health", timeout=2).get("status") == "ok":
                return
        time.sleep(0.2)
    raise measure.Failed(f"llama-server gave no answer in {START_SECONDS_MAX} s")


def _peak_bytes(pid):
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM:"))


@contextlib.contextmanager
def _server(bench, model, ctx, plugin):
    """An unmodified llama-server with the plugin: (its address, its process)."""
    program, environment = bench.engine_program("llama-server")
    port = _free_port()
    command = [program, "-m", model, "--host", "127.0.0.1", "--port", str(port), "--device", "WEIR0", "-ngl", "99", "--fit",
               "off", "--no-repack", "-np", "1", "-c", str(ctx), "-b", "512", "-ub", "512", "-t", str(bench.options.threads),
               "--no-warmup"]
    log = os.path.join(bench.work, "llama-server.log")
    with open(log, "wb") as out:
        process = subprocess.Popen(command, env={**os.environ, **environment, **plugin},
                                   stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        try:
            _wait_for(process, f"http://127.0.0.1:{port}")
            yield f"http://127.0.0.1:{port}", process
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _served_text(bench, model, ids, environment, sheet, peak):
    """What llama-server writes after the same tokens, greedily."""
    tokens = bench.options.tokens
    with _server(bench, model, max(512, len(ids) + tokens), environment) as (url, process):
        body = {"prompt": ids, "n_predict": tokens, "temperature": 0, "top_k": 1, "cache_prompt": False, "ignore_eos": True,
                "repeat_penalty": 1.0}
        answer = _ask(url + "/completion", body, timeout=bench.options.timeout)
        sheet.add("llama-server, generation", answer["timings"]["predicted_per_second"], "tokens/s")
        sheet.add("llama-server, peak memory", _peak_bytes(process.pid), "bytes", peak)
        return answer["content"]


def _whole_characters(text):
    """Text without the marks for bytes that are no character: each program has its own way with those."""
    return text.replace("\ufffd", "")


def _stock_sheet(bench, model, size, environment, preloaded):
    tokens = bench.options.tokens
    sheet = figures.Sheet("stock", model=os.path.basename(model), memory=figures.show(size, "bytes"), tokens=tokens,
                          threads=bench.options.threads, start="preloaded" if preloaded else "plain", cache="cold")
    # In a plain start the engine maps the file populated: its pages are in memory for a moment, and count in the peak.
    peak = size if preloaded else None
    machine.make_cold(model)
    speed, cost = bench.run_llama_bench(model, 64, tokens, False, ["--device", "WEIR0", "-ngl", "99"], environment)
    sheet.add("llama-bench, prompt of 64", speed["prompt"], "tokens/s")
    sheet.add("llama-bench, generation", speed["generation"], "tokens/s")
    sheet.add("llama-bench, peak memory", cost.peak_bytes, "bytes", peak)
    prompt = bench.prompt(model, 24)
    report, _ = bench.run_weir(model, size, prompt, tokens, ctx=512)
    sheet.add("weir run, generation", report["tokens_per_second"], "tokens/s")
    machine.make_cold(model)
    served = _served_text(bench, model, [int(t) for t in prompt.split(",")], environment, sheet, peak)
    same = _whole_characters(served) == _whole_characters(report["text"])
    sheet.add("llama-server writes what weir run writes", same, "", True, "==")
    sheet.note(f"text begins: {report['text'][:60]!r}")
    return sheet


def stock(bench):
    """Unmodified llama-bench and llama-server with the plugin and a budget: as they are, and with the preloaded object."""
    model = bench.model("moe-1b")
    for size in bench.budgets(512 * MIB):
        environment = {"GGML_BACKEND_PATH": bench.plugin(), "WEIR_MEMORY": f"{size // 1024}K"}
        yield _stock_sheet(bench, model, size, environment, False)
        if bench.preload():
            yield _stock_sheet(bench, model, size, {**environment, "LD_PRELOAD": bench.preload()}, True)


def _forecast_models(bench):
    """[(model, its budgets, tokens)]: a mixture of experts, a dense model, a small real one where there is one."""
    if bench.options.model or bench.options.shape:
        return [(bench.model("qwen3-30b-a3b"), bench.budgets(3 * GIB, 4 * GIB, 8 * GIB), bench.options.tokens)]
    models = [(bench.model("qwen3-30b-a3b"), bench.budgets(3 * GIB, 4 * GIB, 8 * GIB), bench.options.tokens),
              (bench.model("dense-7b"), bench.budgets(1536 * MIB, 2 * GIB, 3 * GIB), min(bench.options.tokens, 16))]
    small = os.environ.get("WEIR_SMOLLM2")
    if small and os.path.exists(small):
        models.append((small, bench.budgets(110 * MIB, 130 * MIB, 150 * MIB), bench.options.tokens))
    return models


def _forecast_sheet(bench, model, size, tokens):
    """The forecast before the first run at a budget, and those that could draw on runs, each against the run after it."""
    sheet = figures.Sheet("forecast", model=os.path.basename(model), memory=figures.show(size, "bytes"), tokens=tokens,
                          threads=bench.options.threads, cache="cold")
    plans, reports = [], []
    for _ in range(bench.options.runs + 1):
        machine.make_cold(model)
        plans.append(bench.plan(model, size, 8 + tokens))
        reports.append(bench.run_weir(model, size, bench.prompt(model, 8), tokens)[0])
    errors = [abs(p["tokens_per_second"] / r["tokens_per_second"] - 1) for p, r in zip(plans, reports)]
    sheet.spread("forecast", [p["tokens_per_second"] for p in plans[1:]], "tokens/s")
    sheet.spread("generation", [r["tokens_per_second"] for r in reports[1:]], "tokens/s")
    sheet.add("error of the forecast", figures.median(errors[1:]), "", FORECAST_ERROR_MAX)
    sheet.add("error of the one before the first run at this budget", errors[0])
    sheet.add("error of the one that run itself makes", figures.median([abs(r["forecast"]["error"]) for r in reports[1:]]))
    sheet.add("bytes per token, forecast", figures.median([p["bytes_per_token"] for p in plans[1:]]), "bytes")
    sheet.add("bytes per token", figures.median([r["bytes_per_token"] for r in reports[1:]]), "bytes")
    if reports[-1]["hit_rate"] is not None:
        sheet.add("hit rate, forecast", figures.median([p["expected_hit_rate"] for p in plans[1:]]))
        sheet.add("hit rate", figures.median([r["hit_rate"] for r in reports[1:]]))
    sheet.add("limited by", plans[-1]["limits"])
    return sheet


def forecast(bench):
    """`weir plan` on three models and three budgets: within 15 % of the run after it, once the model has run at that budget."""
    for model, sizes, tokens in _forecast_models(bench):
        for size in sizes:
            yield _forecast_sheet(bench, model, size, tokens)
