#!/usr/bin/env python3
"""`weir simulate`: traces read strictly, the same figures whatever the format, Belady as the bound, plots that are whole."""
import json
import os
import random
import tempfile
import unittest
import xml.dom.minidom

import harness as h

HEADER = "turn,phase,step,layer,slot,expert,weight,residency,expert_bytes\n"
ROW = "0,1,0,0,0,5,0.5,0,1000\n"
TOKENS, LAYERS, EXPERTS, PICKS = 60, 4, 16, 3


def routing(seed=5):
    """tokens × layers × picks, with favourites and repetition, as routers have them."""
    rng = random.Random(seed)
    weights = [1 / (1 + e) for e in range(EXPERTS)]
    tokens, last = [], [[] for _ in range(LAYERS)]
    for _ in range(TOKENS):
        for layer in range(LAYERS):
            picks = [e for e in last[layer] if rng.random() < 0.4]
            while len(picks) < PICKS:
                expert = (rng.choices(range(EXPERTS), weights)[0] + 3 * layer) % EXPERTS
                picks += [expert] * (expert not in picks)
            last[layer] = sorted(picks)
        tokens.append([list(p) for p in last])
    return tokens


def as_csv(tokens):
    rows = [f"0,{int(t >= 10)},{t},{layer},{i},{e},0.25,0,4096\n" for t, layers in enumerate(tokens)
            for layer, picks in enumerate(layers) for i, e in enumerate(picks)]
    return HEADER + "".join(rows)


def as_jsonl(tokens):
    return "".join(json.dumps({"tok": t + 1, "layers": layers}) + "\n" for t, layers in enumerate(tokens))


class Case(unittest.TestCase):
    def setUp(self):
        if not h.WEIR:
            self.skipTest("WEIR_BIN is not set and the build folder does not hold the program")
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = holder.name

    def write(self, text, name="trace.csv"):
        path = os.path.join(self.folder, name)
        with open(path, "wb") as file:
            file.write(text if isinstance(text, bytes) else text.encode())
        return path

    def simulate(self, *arguments):
        return h.run_json([h.WEIR, "simulate", "--json", *arguments])["traces"]

    def rates(self, *arguments):
        """{(policy, percent): result} of one trace."""
        trace, = self.simulate(*arguments)
        return {(r["policy"], r["budget_percent"]): r for r in trace["results"]}


class Figures(Case):
    def test_formats_agree(self):
        tokens = routing()
        rows, lines = self.rates(self.write(as_csv(tokens))), self.rates(self.write(as_jsonl(tokens), "trace.jsonl"))
        self.assertEqual(rows, lines)

    def test_order_of_rows_does_not_matter(self):
        text = as_csv(routing())
        rows = text[len(HEADER):].splitlines(True)
        random.Random(1).shuffle(rows)
        self.assertEqual(self.rates(self.write(text)), self.rates(self.write(HEADER + "".join(rows), "mixed.csv")))

    def test_counts(self):
        trace, = self.simulate(self.write(as_csv(routing())), "--budgets", "25")
        self.assertEqual((trace["tokens"], trace["prompt_tokens"], trace["layers"], trace["experts"]), (TOKENS, 10, LAYERS, EXPERTS))
        self.assertEqual(trace["demanded"], TOKENS * LAYERS * PICKS)
        self.assertEqual({r["slots"] for r in trace["results"]}, {LAYERS * EXPERTS // 4})

    def test_a_trace_worked_by_hand(self):
        """One layer, two slots, picks a b c a: Belady and LRU in the words of simulate.c."""
        rows = "".join(f"0,1,{t},0,0,{e},0,0,1\n" for t, e in enumerate([0, 1, 2, 0]))
        rates = self.rates(self.write(HEADER + rows), "--experts", "4", "--budgets", "50")
        self.assertEqual(rates["belady", 50]["hit_rate"], 0.25)
        self.assertEqual(rates["lru", 50]["hit_rate"], 0.0)

    def test_belady_is_the_bound_and_more_slots_do_not_hurt_it(self):
        rates = self.rates(self.write(as_csv(routing())), "--budgets", "10,20,40,80,100")
        bound = [rates["belady", b]["hit_rate"] for b in (10, 20, 40, 80, 100)]
        self.assertEqual(bound, sorted(bound))
        for (_, budget), result in rates.items():
            self.assertLessEqual(result["hit_rate"], rates["belady", budget]["hit_rate"] + 1e-12)
        for policy in {p for p, _ in rates}:
            self.assertAlmostEqual(rates[policy, 100]["hit_rate"], bound[-1])

    def test_a_global_lru_hits_nothing_below_one_token_cycle(self):
        tokens = [[[0], [1], [2]]] * 20
        rates = self.rates(self.write(as_csv(tokens)), "--experts", "4", "--budgets", "16.7")
        self.assertEqual(rates["lru-global", 16.7]["hit_rate"], 0.0)
        self.assertGreater(rates["lfu", 16.7]["hit_rate"], 0.3)

    def test_experts_stated_by_the_trace(self):
        trace, = self.simulate(self.write("# model=x n_expert=64 n_expert_used=3\n" + as_csv(routing())))
        self.assertEqual(trace["experts"], 64)

    def test_a_table_for_people_and_some_policies(self):
        path = self.write(as_csv(routing()))
        result = h.run([h.WEIR, "simulate", path, path, "--policies", "lru,belady", "--budgets", "12.5"])
        self.assertEqual(result.code, h.EXIT_DONE, str(result))
        self.assertEqual([line.split()[0] for line in result.out.splitlines() if line.startswith("  ") and "hits" not in line],
                         ["slots", "lru", "belady"] * 2)

    def test_a_plot_is_well_formed(self):
        plot = os.path.join(self.folder, "a.svg")
        path = self.write(as_csv(routing()), "<&>\x1b.csv")
        self.simulate(path, path, "--plot", plot)
        document = xml.dom.minidom.parse(plot)
        self.assertEqual(len(document.getElementsByTagName("g")), 2)
        self.assertEqual(os.listdir(self.folder).count("a.svg"), 1)
        self.assertEqual(len(os.listdir(self.folder)), 2)


class Refusals(Case):
    BAD = {
        "empty": b"", "only a header": HEADER, "only comments": "# a\n# b\n", "an empty line": HEADER + ROW + "\n" + ROW,
        "missing column": "0,1,0,0,0,5,0.5,0\n", "a column too many": "0,1,0,0,0,5,0.5,0,1000,1\n",
        "a word": "0,1,0,0,0,five,0.5,0,1000\n", "a sign": "0,1,0,0,0,-5,0.5,0,1000\n", "a blank": "0,1,0,0,0, 5,0.5,0,1000\n",
        "a huge expert": "0,1,0,0,0,65536,0.5,0,1000\n", "a huge layer": "0,1,0,4096,0,5,0.5,0,1000\n",
        "a huge step": f"0,1,{2 ** 53},0,0,5,0.5,0,1000\n", "past 64 bits": f"0,1,{10 ** 40},0,0,5,0.5,0,1000\n",
        "phase 2": "0,2,0,0,0,5,0.5,0,1000\n", "nan": "0,1,0,0,0,5,nan,0,1000\n", "1e999": "0,1,0,0,0,5,1e999,0,1000\n",
        "no weight": "0,1,0,0,0,5,,0,1000\n", "NUL": b"0,1,0,0,0,5,0.5,0,10\x0000\n", "NUL weight": b"0,1,0,0,0,5,\x00,0,1\n",
        "only NUL": b"\0" * 4096, "binary": bytes(range(256)) * 8, "cut short": "0,1,0,0,0,5,0.5,0,", "CRLF": ROW[:-1] + "\r\n",
        "second header": HEADER + ROW + HEADER, "twice": ROW + ROW, "two phases": ROW + "0,0,0,0,1,6,0.5,0,1000\n",
        "n_expert too few": "# n_expert=4\n" + ROW, "n_expert 0": "# n_expert=0\n" + ROW, "n_expert=9x": "# n_expert=9x\n" + ROW,
        "not JSON": '{"tok": 1, "layers": [[1, 2]\n', "an array": '{"tok": 1, "layers": [[1]]}\n[1]\n', "no tok": '{"layers": [[1]]}\n',
        "no layers": '{"tok": 1}\n', "layers of numbers": '{"tok": 1, "layers": [1]}\n', "no layer": '{"tok": 1, "layers": []}\n',
        "only empty layers": '{"tok": 1, "layers": [[], []]}\n', "negative": '{"tok": 1, "layers": [[-1]]}\n',
        "a real": '{"tok": 1, "layers": [[1.5]]}\n', "huge": '{"tok": 1, "layers": [[99999999999999999999]]}\n',
        "same key": '{"tok": 1, "tok": 2, "layers": [[1]]}\n', "twice in JSON": '{"tok": 1, "layers": [[1, 1]]}\n',
        "deep": '{"tok": ' + "[" * 100000 + "\n",
    }

    def test_bad_traces(self):
        for name, text in self.BAD.items():
            with self.subTest(name):
                path = self.write(text)
                result = h.run([h.WEIR, "simulate", path])
                self.assertEqual(result.code, h.EXIT_FORMAT, str(result))
                self.assertEqual(result.out, "")
                self.assertEqual(result.err.count("\n"), 1, str(result))
                self.assertIn(path, result.err)
                self.assertNotRegex(result.err[:-1], r"[\x00-\x1f\x7f]")

    def test_the_line_is_named(self):
        result = h.run([h.WEIR, "simulate", self.write(HEADER + ROW + "0,1,0,0,1,x,0,0,1\n")])
        self.assertEqual(result.code, h.EXIT_FORMAT)
        self.assertIn("/trace.csv: line 3: ", result.err)

    def test_no_line_of_a_table_ends_in_blanks(self):
        for text in (ROW, as_csv(routing())):
            shown = h.run([h.WEIR, "simulate", self.write(text)]).out
            self.assertEqual([line for line in shown.splitlines() if line != line.rstrip()], [])
            self.assertIn(f"{'1 token' if text == ROW else '60 tokens'} (", shown)

    def test_every_way_of_cutting_a_trace_short(self):
        text = as_csv(routing())[:400]
        for end in range(0, len(text), 7):
            self.assertIn(h.run([h.WEIR, "simulate", self.write(text[:end])]).code, (h.EXIT_DONE, h.EXIT_FORMAT))

    def test_not_a_file(self):
        self.assertEqual(h.run([h.WEIR, "simulate", os.path.join(self.folder, "none")]).code, h.EXIT_FAILED)
        self.assertIn(h.run([h.WEIR, "simulate", self.folder]).code, (h.EXIT_FAILED, h.EXIT_FORMAT))

    def test_wrong_usage(self):
        path = self.write(ROW)
        for arguments in ((), (path, "--budgets", "0"), (path, "--budgets", "101"), (path, "--budgets", "5,,6"),
                          (path, "--budgets", "5,"), (path, "--budgets", "1e1"), (path, "--policies", "best"),
                          (path, "--policies", ""), (path, "--policies", ","), (path, "--plot", "a.gif"), (path, "--experts", "0"),
                          (path, "--budgets", ",".join(["5"] * 40)), (path, "--policies", "lru," * 200)):
            self.assertEqual(h.run([h.WEIR, "simulate", *arguments]).code, h.EXIT_USAGE, arguments)

    def test_too_few_experts_stated(self):
        self.assertNotEqual(h.run([h.WEIR, "simulate", self.write(ROW), "--experts", "5"]).code, h.EXIT_DONE)


if __name__ == "__main__":
    unittest.main(verbosity=2)
