#!/usr/bin/env python3
"""`weir doctor`: its shape, and that each finding changes when what it is about changes: limits, filters, groups, file systems."""
import ctypes
import json
import os
import re
import resource
import struct
import subprocess
import tempfile
import unittest

import harness as h

NAMES = {"drive", "direct reads", "drive rate", "space", "io_uring", "memory", "swap", "huge pages", "memory pressure",
         "instructions", "processors", "other programs"}
VERDICTS = {"ok", "note", "warning", "unknown"}
MEMORY_GROUPS, CPU_GROUPS = "/sys/fs/cgroup/memory", "/sys/fs/cgroup/cpu"


def refuse_io_uring():
    """A seccomp filter like those of containers: io_uring_setup (425 on every machine) is not permitted."""
    def instruction(code, jt, jf, k):
        return struct.pack("HBBI", code, jt, jf, k)
    code = (instruction(0x20, 0, 0, 0) + instruction(0x15, 0, 1, 425) + instruction(0x06, 0, 0, 0x00050001) +
            instruction(0x06, 0, 0, 0x7FFF0000))
    buffer = ctypes.create_string_buffer(code)
    program = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.create_string_buffer(program)):
        os._exit(99)


class Doctor(unittest.TestCase):
    def setUp(self):
        if not h.WEIR:
            raise unittest.SkipTest("the program is not built")
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = holder.name

    def examine(self, *more, before=None, prefix=()):
        command = [*prefix, h.WEIR, "doctor", "--json", "--no-measure", *(more or (self.folder,))]
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, preexec_fn=before,
                              timeout=h.TIMEOUT_SECONDS, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, "")
        return json.loads(done.stdout)

    def finding(self, name, **more):
        found = self.examine(**more)
        return next(f for f in found["findings"] if f["name"] == name)

    def assert_warns(self, finding, says, advice=""):
        self.assertEqual(finding["verdict"], "warning", finding)
        self.assertIn(says, finding["says"])
        self.assertIn(advice, finding["advice"])


class Shape(Doctor):
    def test_json(self):
        found = self.examine()
        self.assertEqual(list(found), ["weir_version", "path", "machine", "findings", "warnings"])
        self.assertLessEqual(NAMES, {f["name"] for f in found["findings"]})
        for finding in found["findings"]:
            self.assertEqual(list(finding), ["name", "verdict", "says", "advice"])
            self.assertIn(finding["verdict"], VERDICTS)
            self.assertTrue(finding["says"])
            self.assertTrue(finding["verdict"] != "warning" or finding["advice"] or finding["name"] == "io_uring")
        self.assertEqual(found["warnings"], sum(f["verdict"] == "warning" for f in found["findings"]))
        self.assertGreater(found["machine"]["memory_bytes"], 0)

    def test_text(self):
        result = h.run([h.WEIR, "doctor", "--no-measure", self.folder])
        self.assertEqual((result.code, result.err), (0, ""))
        for line in result.out.splitlines():
            self.assertTrue(line.split()[0] in VERDICTS | {"->"}, line)

    def test_the_folder_with_the_space_is_named(self):
        file = os.path.join(self.folder, "file")
        with open(file, "wb"):
            pass
        for path in (self.folder, file, "."):
            result = subprocess.run([h.WEIR, "doctor", "--no-measure", path], cwd=self.folder, capture_output=True, text=True,
                                    timeout=h.TIMEOUT_SECONDS, check=True)
            self.assertRegex(result.stdout, rf" \w+ free in {re.escape(os.path.realpath(self.folder))}\n")

    def test_no_path(self):
        for path, code in (("/nosuch", h.EXIT_FAILED), ("/dev/zero", h.EXIT_FORMAT)):
            result = h.run([h.WEIR, "doctor", path])
            self.assertEqual((result.code, result.out), (code, ""))
            self.assertIn(path, result.err)


class Limits(Doctor):
    def test_address_space(self):
        if h.SANITIZED:
            self.skipTest("a sanitizer takes more address space than any limit")
        limit = 2 << 30
        finding = self.finding("memory", before=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
        self.assert_warns(finding, "RLIMIT_AS", "ulimit")

    def test_processors(self):
        if len(os.sched_getaffinity(0)) < 2:
            self.skipTest("there is one processor")
        finding = self.finding("processors", before=lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}))
        self.assertEqual(finding["verdict"], "note")
        self.assertIn("1 of ", finding["says"])

    def test_io_uring(self):
        self.assert_warns(self.finding("io_uring", before=refuse_io_uring), "seccomp", "io_uring_setup")


@unittest.skipUnless(os.geteuid() == 0, "needs root")
class AsRoot(Doctor):
    def group(self, root, **files):
        """A function for the child: it enters a new group with these files written."""
        if not os.path.exists(os.path.join(root, "cgroup.procs")):
            self.skipTest(f"{root} is not there")
        path = tempfile.mkdtemp(prefix="weir-doctor-", dir=root)
        self.addCleanup(os.rmdir, path)
        for name, value in files.items():
            with open(os.path.join(path, name.replace("__", ".")), "w") as file:
                file.write(str(value))

        def enter():
            with open(os.path.join(path, "cgroup.procs"), "w") as file:
                file.write("0")
        return enter

    def unshared(self, *commands):
        """A prefix: the commands of the shell are run in a mount namespace of their own first."""
        if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
            self.skipTest("no mount namespace can be made")
        return ["unshare", "-m", "sh", "-c", " && ".join(commands) + ' && exec "$@"', "sh"]

    def test_memory_group(self):
        enter = self.group(MEMORY_GROUPS, memory__limit_in_bytes=512 << 20)
        self.assert_warns(self.finding("memory", before=enter), "weir-doctor-", "limit")

    def test_processor_quota(self):
        enter = self.group(CPU_GROUPS, cpu__cfs_period_us=100000, cpu__cfs_quota_us=50000)
        self.assert_warns(self.finding("processors", before=enter), "0.50", "--threads 1")

    def test_huge_pages(self):
        name = "/sys/kernel/mm/transparent_hugepage/enabled"
        if not os.path.exists(name):
            self.skipTest("this kernel has no transparent huge pages")
        with open(os.path.join(self.folder, "never"), "w") as file:
            file.write("always madvise [never]\n")
        prefix = self.unshared(f"mount --bind {self.folder}/never {name}")
        self.assert_warns(self.finding("huge pages", prefix=prefix), "[never]", "madvise")

    def test_direct_reads(self):
        self.assertEqual(self.finding("direct reads")["verdict"], "ok")
        prefix = self.unshared(f"mount -t ramfs ramfs {self.folder}")
        finding = self.finding("direct reads", prefix=prefix)
        self.assert_warns(finding, "page cache", "ext4")


if __name__ == "__main__":
    unittest.main()
