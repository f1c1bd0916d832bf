#!/usr/bin/env python3
"""weir.mlx.load(streaming=True): the same logits with however few slots, whatever is lazy, and errors that leave nothing."""
import gc
import os
import threading
import unittest
from pathlib import Path
from unittest import mock

import mlx.core as mx
import support
import tiny_models
import weir
import weir.mlx
from cases import PROMPT, Q4, equal, logits, moe
from mlx_lm.utils import load_model
from weir.mlx import _switch

LONG_PROMPT = [[(7 * i + i // 9) % tiny_models.VOCABULARY for i in range(70)]]


def stream(path, experts_memory=None, **options):
    return weir.mlx.load_model(path, streaming=True, memory="4G", ctx=256, experts_memory=experts_memory, **options)[0]


def sizes(path):
    """Bytes that hold all experts, and the fewest slots."""
    budget = stream(path)._weir.budget
    return budget.experts_all, budget.experts_least


class Logits(support.Folder):
    def test_equal_with_all_half_a_quarter_and_the_fewest_slots(self):
        for number, (kind, layout, quantization, dtype) in enumerate(moe(support.LONG)):
            path = tiny_models.make(self.path(str(number)), kind, layout=layout, quantization=quantization, dtype=dtype,
                                    aligned=number % 2 == 0, shards=1 + number % 2)
            wanted = logits(load_model(Path(path))[0])
            everything, least = sizes(path)
            slots = []
            for memory in (everything, everything // 2, everything // 4, least):
                with self.subTest(kind=kind, layout=layout, quantization=quantization, memory=memory):
                    model = stream(path, max(memory, least))
                    self.assertTrue(equal(logits(model), wanted))
                    slots.append(weir.mlx.stats(model).streaming["slots"])
            self.assertEqual(slots, sorted(slots, reverse=True))
            self.assertLess(slots[-1], slots[0] / 2)

    def test_equal_for_a_long_prompt_and_several_sequences(self):
        path = tiny_models.make(self.path("m"), "qwen3_moe", quantization=Q4, dtype=mx.bfloat16)
        model, _ = load_model(Path(path))
        everything, least = sizes(path)
        for prompt in (LONG_PROMPT, [PROMPT[0], PROMPT[0][::-1], LONG_PROMPT[0][:9]]):
            wanted = logits(model, prompt=prompt)
            for memory in (everything, everything // 3, least):
                self.assertTrue(equal(logits(stream(path, max(memory, least)), prompt=prompt), wanted))

    def test_equal_with_each_policy_and_method(self):
        path = tiny_models.make(self.path("m"), "qwen3_moe", quantization=Q4, dtype=mx.bfloat16, aligned=False)
        wanted = logits(load_model(Path(path))[0], steps=6)
        everything, least = sizes(path)
        memory = max(everything // 3, least)
        for options in ({"policy": "lru"}, {"policy": "lfu"}, {"io": "threads"}, {"io": "mmap"}, {"lookahead": False},
                        {"mmap": False}):
            with self.subTest(options):
                self.assertTrue(equal(logits(stream(path, memory, **options), steps=6), wanted))

    def test_equal_while_the_next_layer_is_guessed(self):
        for kind in ("qwen3_moe", "gpt_oss", "deepseek_v3"):
            path = tiny_models.make(self.path(kind), kind, dtype=mx.bfloat16,
                                    quantization={**Q4, "mode": "mxfp4"} if kind == "gpt_oss" else Q4)
            wanted = logits(load_model(Path(path))[0], steps=20)
            model = stream(path, sizes(path)[0] * 2 // 3)
            self.assertTrue(equal(logits(model, steps=20), wanted))
            found = weir.mlx.stats(model).streaming
            self.assertGreater(found["prefetched"], 0, kind)
            self.assertGreater(found["prefetch_used"], 0, kind)

    def test_dense_weights_in_memory(self):
        path = tiny_models.make(self.path("m"), "mixtral", quantization=Q4)
        stats = weir.mlx.stats(stream(path, mmap=False))
        self.assertEqual(stats.mapped_bytes, 0)
        self.assertEqual({entry.why for entry in stats.copied}, {"asked for"})
        self.assertEqual(weir.mlx.stats(stream(path)).copied, [])


class Few(support.Folder):
    """A model with the fewest slots, and the same as mlx_lm has it."""

    def setUp(self):
        super().setUp()
        self.model_path = tiny_models.make(self.path("m"), "qwen3_moe", quantization=Q4, dtype=mx.bfloat16)
        self.whole, _ = load_model(Path(self.model_path))
        self.sizes = sizes(self.model_path)
        self.few = stream(self.model_path, self.sizes[1])


class Laziness(Few):
    """MLX computes when a result is asked for: by then the slots may long hold other experts."""

    def test_two_forwards_and_one_evaluation(self):
        tokens = [mx.array(PROMPT), mx.array([PROMPT[0][::-1]]), mx.array([[7]])]
        wanted = [self.whole(t) for t in tokens]
        mx.eval(wanted)
        for _ in range(10):
            found = [self.few(t) for t in tokens]
            mx.eval(found)
            self.assertTrue(equal(found, wanted))

    def test_in_flight(self):
        wanted = self.whole(mx.array([[7]]))
        mx.eval(wanted)
        for _ in range(10):
            found = self.few(mx.array([[7]]))
            mx.async_eval(found)
            mx.async_eval(self.few(mx.array([[9]])))
            self.assertTrue(equal([found], [wanted]))

    def test_results_that_nobody_wants(self):
        self.few(mx.array(PROMPT))
        self.assertTrue(equal([self.few(mx.array([[7]]))], [self.whole(mx.array([[7]]))]))

    def test_a_result_outlives_the_model(self):
        wanted = self.whole(mx.array([[7]]))
        found = self.few(mx.array([[7]]))
        weir.mlx.release(self.few)
        self.few = None
        gc.collect()
        self.assertTrue(equal([found], [wanted]))

    def test_transformations_are_refused(self):
        tokens = mx.array(PROMPT)
        for name, call in (("compile", lambda: mx.compile(self.few)(tokens)),
                           ("vmap", lambda: mx.vmap(self.few)(tokens[None])),
                           ("grad", lambda: mx.grad(lambda e: self.few(tokens, input_embeddings=e).sum())(mx.zeros((1, 9, 64))))):
            with self.subTest(name), self.assertRaisesRegex(weir.UnsupportedError, "mx.compile, mx.vmap or mx.grad"):
                mx.eval(call())
        self.assertTrue(equal([self.few(tokens)], [self.whole(tokens)]), "usable afterwards")


class Threads(Few):
    """MLX evaluates a result only in the thread that made it."""

    def in_thread(self, work):
        """Starts it; returns the thread, and a list that gets its result or its error."""
        found = []

        def run():
            try:
                found.append(work())
            except Exception as problem:
                found.append(problem)

        thread = threading.Thread(target=run)
        thread.start()
        return thread, found

    def test_two_generate_at_once(self):
        prompts = [PROMPT, [PROMPT[0][::-1]], LONG_PROMPT]
        wanted = [logits(self.whole, steps=6, prompt=prompt) for prompt in prompts]
        for memory in (self.sizes[1], sum(self.sizes) // 2):
            model = stream(self.model_path, memory)
            started = [self.in_thread(lambda p=prompt: logits(model, steps=6, prompt=p)) for prompt in prompts]
            for (thread, found), expected in zip(started, wanted):
                thread.join()
                self.assertIsInstance(found[0], list, found)
                self.assertTrue(equal(found[0], expected))

    def test_what_another_thread_has_not_evaluated_stays(self):
        made, go_on = threading.Event(), threading.Event()
        wanted = [self.whole(mx.array(PROMPT)), self.whole(mx.array([[7]]))]
        mx.eval(wanted)

        def late():
            result = self.few(mx.array(PROMPT))
            made.set()
            go_on.wait()
            return equal([result], wanted[:1])

        thread, found = self.in_thread(late)
        made.wait()
        timer = threading.Timer(0.2, go_on.set)
        timer.start()
        self.assertTrue(equal([self.few(mx.array([[7]]))], wanted[1:]))
        thread.join()
        timer.join()
        self.assertEqual(found, [True])

    def test_what_no_thread_can_evaluate_any_more(self):
        thread, found = self.in_thread(lambda: self.few(mx.array([[7]])))
        thread.join()
        with mock.patch.object(_switch, "_PATIENCE", 20), self.assertRaisesRegex(weir.BusyError, "other threads"):
            mx.eval(self.few(mx.array([[9]])))
        found.clear()
        self.assertTrue(equal([self.few(mx.array([[9]]))], [self.whole(mx.array([[9]]))]))


class Budget(support.Folder):
    def test_too_little_is_refused_with_the_least(self):
        path = tiny_models.make(self.path("m"), "qwen3_moe", quantization=Q4)
        with self.assertRaises(weir.BudgetError) as caught:
            weir.mlx.load_model(path, streaming=True, memory="16M", ctx=256)
        least = caught.exception.least_budget_bytes
        self.assertGreater(least, 16 << 20)
        self.assertRegex(str(caught.exception), rf"the least is {least} bytes \(\d+\.\d\d MiB\)")
        model, _ = weir.mlx.load_model(path, streaming=True, memory=int(least * 1.1), ctx=256)
        self.assertTrue(equal([model(mx.array(PROMPT))], [load_model(Path(path))[0](mx.array(PROMPT))]))

    def test_arguments(self):
        moe_path, dense_path = tiny_models.make(self.path("m"), "qwen3_moe"), tiny_models.make(self.path("d"), "llama")
        for kind, path, options in ((weir.InvalidArgumentError, moe_path, {"memory": "much"}),
                                    (weir.InvalidArgumentError, moe_path, {"memory": -1}),
                                    (weir.InvalidArgumentError, moe_path, {"memory": 1.5}),
                                    (weir.InvalidArgumentError, moe_path, {"memory": "4G", "policy": "none such"}),
                                    (weir.InvalidArgumentError, moe_path, {"memory": "4G", "io": "none such"}),
                                    (weir.InvalidArgumentError, moe_path, {"memory": True}),
                                    (weir.InvalidArgumentError, moe_path, {"memory": "4G", "ctx": 0}),
                                    (weir.InvalidArgumentError, moe_path, {"memory": "4G", "batch": "many"}),
                                    (weir.InvalidArgumentError, moe_path, {"memory": "4G", "experts_memory": -1}),
                                    (weir.BudgetError, moe_path, {"memory": "4G", "experts_memory": 1}),
                                    (weir.InvalidArgumentError, moe_path, {"memory": "4G", "context": 9}),
                                    (weir.UnsupportedError, dense_path, {"memory": "4G"})):
            with self.subTest(options), self.assertRaises(kind) as caught:
                weir.mlx.load_model(path, streaming=True, **options)
            self.assertNotIn("WEIR_", str(caught.exception), "no words")

    def test_too_little_for_experts_is_refused_with_the_least(self):
        path = tiny_models.make(self.path("m"), "qwen3_moe", quantization=Q4)
        with self.assertRaisesRegex(weir.BudgetError, r"1 bytes for experts .* \(\d+\.\d\d MiB\)") as caught:
            stream(path, 1)
        stream(path, caught.exception.least_budget_bytes)

    def test_experts_that_are_computed_are_refused(self):
        path = tiny_models.make(self.path("m"), "qwen3_moe")
        model_class = tiny_models.classes_of("qwen3_moe")[0]
        original = model_class.sanitize

        def sanitize(model, weights):
            return {name: array * 1.0 if "switch_mlp" in name else array for name, array in original(model, weights).items()}

        model_class.sanitize = sanitize
        self.addCleanup(setattr, model_class, "sanitize", original)
        with self.assertRaisesRegex(weir.UnsupportedError, "up_proj.weight is computed while the model is loaded"):
            stream(path)


class Faults(support.Folder):
    def setUp(self):
        super().setUp()
        self.model_path = tiny_models.make(self.path("m"), "qwen3_moe", quantization=Q4, dtype=mx.bfloat16)
        self.wanted = logits(load_model(Path(self.model_path))[0])
        self.memory = sizes(self.model_path)[1]

    def test_reads_that_fail(self):
        raised = 0
        for number in (1, 2, 9, 40, 90):
            with self.subTest(number):
                model = stream(self.model_path, self.memory, fault=f"eio:{number}", lookahead=False)
                try:  # a read that was begun for more than there was room for is done again, and nobody hears of it
                    self.assertTrue(equal(logits(model), self.wanted))
                except weir.InputOutputError as problem:
                    raised += 1
                    self.assertTrue(problem.file.endswith("model.safetensors"))
                    self.assertIsNotNone(problem.offset)
                self.assertTrue(equal(logits(model), self.wanted), "only that read failed")
        self.assertGreaterEqual(raised, 2)

    def test_short_and_late_reads(self):
        for fault in ("short:3", "eintr:2", "reorder,seed:3"):
            with self.subTest(fault):
                self.assertTrue(equal(logits(stream(self.model_path, self.memory, fault=fault)), self.wanted))

    def test_a_file_that_shrinks(self):
        model = stream(self.model_path, self.memory, mmap=False)
        os.truncate(self.path("m/model.safetensors"), 8192)
        with self.assertRaises((weir.ChangedError, weir.InputOutputError)):
            logits(model)

    def test_released_models_say_so(self):
        model = stream(self.model_path)
        weir.mlx.release(model)
        with self.assertRaises(weir.UnsupportedError):
            weir.mlx.restore(model)


if __name__ == "__main__":
    unittest.main()
