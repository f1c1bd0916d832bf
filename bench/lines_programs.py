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
FORECAST_ERROR_MAX = 0.3


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


def forecast(bench):
    """`weir plan` and `weir run` on the same budgets: the forecast is within 30 %."""
    model = bench.model("qwen3-30b-a3b")
    ctx = 8 + bench.options.tokens
    for size in bench.budgets(3 * GIB, 4 * GIB, 8 * GIB):
        sheet = figures.Sheet("forecast", model=os.path.basename(model), memory=figures.show(size, "bytes"),
                              tokens=bench.options.tokens, threads=bench.options.threads, cache="cold")
        plan = bench.plan(model, size, ctx)
        reports = []
        for _ in range(bench.options.runs):
            machine.make_cold(model)
            reports.append(bench.run_weir(model, size, bench.prompt(model, 8), bench.options.tokens)[0])
        sheet.add("forecast", plan["tokens_per_second"], "tokens/s")
        speed = sheet.spread("generation", [r["tokens_per_second"] for r in reports], "tokens/s")
        sheet.add("error of the forecast", abs(plan["tokens_per_second"] / speed - 1), "", FORECAST_ERROR_MAX)
        sheet.add("bytes per token, forecast", plan["bytes_per_token"], "bytes")
        sheet.add("bytes per token", figures.median([r["bytes_per_token"] for r in reports]), "bytes")
        sheet.add("hit rate, forecast", plan["expected_hit_rate"])
        sheet.add("hit rate", figures.median([r["hit_rate"] for r in reports]))
        sheet.add("limited by", plan["limits"])
        yield sheet
