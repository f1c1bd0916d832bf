"""The lines about memory: the budget holds, and a start reads no more than it must."""
import os
import statistics

import figures
import machine

SHORT_PROMPT = 8
GIB, MIB = 1 << 30, 1 << 20


def _budget_sheet(bench, model, budget, prompt_tokens):
    tokens = bench.options.tokens
    sheet = figures.Sheet("budget", model=os.path.basename(model), memory=figures.show(budget, "bytes"), prompt=prompt_tokens,
                          tokens=tokens, threads=bench.options.threads, cache="cold")
    machine.make_cold(model)
    report, cost = bench.run_weir(model, budget, bench.prompt(model, prompt_tokens), tokens, limit=budget)
    sheet.add("peak memory, as reported", report["peak_memory_bytes"], "bytes", budget)
    sheet.add("peak memory, as the kernel counted", cost.peak_bytes, "bytes", budget)
    sheet.add("cgroup's peak", cost.group["peak_bytes"], "bytes", budget)
    sheet.add("times the limit was hit", cost.group["limit_hits"], "", 0, "==")
    sheet.add("major faults per token, steady", cost.faults_per_token(report["seconds"], report["tokens"]), "", 0, "==")
    sheet.add("major faults of the whole run", cost.major_faults)
    sheet.add("tokens generated", report["tokens"], "", tokens, "==")
    sheet.add("generation", report["tokens_per_second"], "tokens/s")
    sheet.add("prompt", report["prompt_tokens_per_second"], "tokens/s")
    return sheet


def budget(bench):
    """Each budget in a cgroup of just that size, with a short and with a long prompt."""
    bench.need_cgroup()
    model = bench.model("qwen3-30b-a3b")
    for size in bench.budgets(4 * GIB, 2500 * MIB):
        for prompt_tokens in (SHORT_PROMPT, bench.options.long_prompt):
            yield _budget_sheet(bench, model, size, prompt_tokens)


def _rows_of(name):
    """A table of which a token needs one row."""
    return name == "token_embd.weight"


def start(bench):
    """What is read before the first token: at most the dense weights once and one token's experts; and how long that takes."""
    model = bench.model("qwen3-30b-a3b")
    for size in bench.budgets(4 * GIB):
        sheet = figures.Sheet("start", model=os.path.basename(model), memory=figures.show(size, "bytes"),
                              threads=bench.options.threads, cache="cold")
        reports, memory, rates = [], [], [bench.drive_rate(model)]
        for _ in range(bench.options.runs):
            machine.make_cold(model)
            memory.append(machine.fresh_memory_seconds(size))  # what a virtual machine takes to get it from its host is not weir's
            reports.append(bench.run_weir(model, size, bench.prompt(model, 1), 1))
        rates.append(bench.drive_rate(model))
        plan = bench.plan(model, size, ctx=2)
        dense = sum(t["bytes"] for t in bench.tensors(model) if "_exps." not in t["name"] and not _rows_of(t["name"]))
        sheet.spread("bytes read before the first token, as the kernel counted", [c.drive_bytes for _, c in reports], "bytes")
        sheet.figures[-1].target = 1.05 * (dense + plan["token_cycle_bytes"]) + 64 * MIB
        sheet.add("dense weights", dense, "bytes")
        sheet.add("one token's experts", plan["token_cycle_bytes"], "bytes")
        sheet.add("the whole model", sum(os.path.getsize(p) for p in machine.shards_of(model)), "bytes")
        sheet.spread("load", [r["load_seconds"] for r, _ in reports], "s")
        sheet.spread("first token", [r["first_token_seconds"] for r, _ in reports], "s")
        reading = statistics.median(c.drive_bytes for _, c in reports) / statistics.mean(rates)
        sheet.figures[-1].target = 1 + reading
        sheet.add("what was read, at the drive's rate", reading, "s")
        sheet.spread("memory of the budget, from the machine, before each run", memory, "s")
        sheet.note("the target is 1.05 of dense weights and one token's experts, and 64 MiB for program, headers, vocabulary; for the first "
                   "token, one second more than the reading takes")
        yield sheet
