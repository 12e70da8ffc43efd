"""The checks are seen to fail: each is handed a planted violation and, beside it, a clean twin."""
import os
import pathlib
import stat
import subprocess
import sys
import tempfile
import unittest

import check_documents
import check_format
import check_includes
import check_reference
import check_snippets
import check_text
import sources
from sources import Source

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def includes(path, line):
    return check_includes.check_sources([Source(path, f"// A file.\n{line}\n")])


def text(path, body):
    return check_text.check_sources([Source(path, body)])


class Includes(unittest.TestCase):
    def refused(self, path, line, part):
        found = includes(path, line)
        self.assertEqual([(v.path, v.line) for v in found], [(path, 2)])
        self.assertIn(part, found[0].message)

    def allowed(self, path, line):
        self.assertEqual(includes(path, line), [])

    def test_the_order_holds_between_all_pairs(self):
        # Independent of the checker's arithmetic: the pairs are written out.
        below = {
            "core": ["kernels", "autograd", "nn", "data", "parallel", "models", "apps"],
            "kernels": ["autograd", "nn", "data", "parallel", "models", "apps"],
            "autograd": ["nn", "data", "parallel", "models", "apps"],
            "nn": ["data", "parallel", "models", "apps"],
            "data": ["parallel", "models", "apps"],
            "parallel": ["models", "apps"],
            "models": ["apps"],
        }
        for mine, folders in below.items():
            for theirs in folders:
                self.refused(f"{mine}/a.h", f'#include "{theirs}/b.h"', f"{mine} may not include from {theirs}")
        for mine, theirs in [("kernels", "core"), ("nn", "autograd"), ("parallel", "data"), ("parallel", "nn"),
                             ("apps", "models"), ("apps", "core"), ("core", "core")]:
            self.allowed(f"{mine}/a.cpp", f'#include "{theirs}/b.h"')

    def test_nn_knows_no_ranks(self):
        self.refused("nn/layers/linear.cpp", '#include "parallel/comm/communicator.h"', "nn may not include")

    def test_schedules_are_pure_data(self):
        for name in ["kernels/gemm.h", "nn/module.h", "parallel/comm/communicator.h", "parallel/pipeline/runtime/x.h"]:
            self.refused("parallel/pipeline/schedule/gpipe.cpp", f'#include "{name}"', "parallel/pipeline/schedule")
        self.allowed("parallel/pipeline/schedule/gpipe.cpp", '#include "core/error.h"')
        self.allowed("parallel/pipeline/schedule/gpipe.cpp", '#include "parallel/pipeline/schedule/plan.h"')
        self.allowed("parallel/pipeline/runtime/executor.cpp", '#include "parallel/comm/communicator.h"')

    def test_mpi_stays_in_comm(self):
        for line in ["#include <mpi.h>", '#  include "mpi.h"']:
            self.refused("parallel/pipeline/runtime/a.cpp", line, "MPI is spoken")
            self.refused("apps/train/main.cpp", line, "MPI is spoken")
        self.refused("parallel/mesh/mesh.cpp", "#include <nccl.h>", "NCCL is spoken")
        self.allowed("parallel/comm/mpi_communicator.cpp", "#include <mpi.h>")
        self.refused("parallel/comm/a.cpp", '#include "nn/module.h"', "parallel/comm may include only")
        self.refused("data/sampler.cpp", '#include "nn/module.h"', "data may include only")
        self.refused("parallel/community/a.cpp", "#include <mpi.h>", "MPI is spoken")

    def test_other_homes(self):
        self.refused("nn/a.cpp", "#include <oneapi/dnnl/dnnl.hpp>", "oneDNN")
        self.allowed("kernels/cpu/gemm.cpp", "#include <oneapi/dnnl/dnnl.hpp>")
        self.refused("models/a.cpp", "#include <CLI/CLI.hpp>", "flags")
        self.allowed("apps/common/flags.cpp", "#include <CLI/CLI.hpp>")

    def test_paths_are_from_the_root(self):
        self.refused("nn/a.cpp", '#include "../core/error.h"', "from the root")
        self.refused("nn/a.cpp", '#include "module.h"', "path from the root")
        self.allowed("nn/a.cpp", "#include <vector>")
        self.allowed("tests/nn/a.cpp", '#include "models/gpt2.h"')


class Text(unittest.TestCase):
    def test_opening_comment(self):
        for body in ["#pragma once\n// late\n", "\n#include <vector>\n", "int x;\n", "//\nint x;\n", ""]:
            self.assertEqual([v.line for v in text("core/a.h", body)], [1], body)
        for body in ["// What.\n#pragma once\n", "/* What. */\n", "/// What.\n"]:
            self.assertEqual(text("core/a.h", body), [], body)
        self.assertEqual(len(text("a.py", "import os\n")), 1)
        self.assertEqual(text("a.py", '"""What."""\nimport os\n'), [])
        self.assertEqual(len(text("scripts/a", "#!/bin/sh\necho\n")), 1)
        self.assertEqual(text("scripts/a", "#!/bin/sh\n# What.\necho\n"), [])
        self.assertEqual(len(text("CMakeLists.txt", "project(x)\n")), 1)

    def test_length(self):
        self.assertEqual(text("core/a.h", "// x\n" * 600), [])
        found = text("core/a.h", "// x\n" * 601)
        self.assertEqual([v.line for v in found], [601])
        self.assertIn("601 lines", found[0].message)

    def test_markers(self):
        for word in ["TO" + "DO", "FIX" + "ME"]:
            found = text("core/a.h", f"// What.\nint x;  // {word}: later\n")
            self.assertEqual([v.line for v in found], [2])
            self.assertEqual([v.line for v in text("docs/a.md", f"# A\n{word}\n")], [2])
        self.assertEqual(text("core/a.h", "// What.\nint to_do_list;  // Todos\n"), [])

    def test_white_space(self):
        self.assertEqual([v.line for v in text("core/a.h", "// What.\nint x; \n")], [2])
        self.assertEqual([v.line for v in text("core/a.h", "// What.\nint x;")], [2])


class Format(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)
        (self.root / ".clang-format").write_bytes((ROOT / ".clang-format").read_bytes())
        (self.root / "good.h").write_text("// What.\nint* f(int a);\n")
        (self.root / "bad.h").write_text("// What.\nint *f( int a ) ;\n")

    def tearDown(self):
        self.folder.cleanup()

    def test_a_badly_formatted_file_is_found(self):
        self.assertEqual(check_format.check_files(self.root, ["good.h"]), [])
        found = check_format.check_files(self.root, ["good.h", "bad.h"])
        self.assertEqual([(v.path, v.line) for v in found], [("bad.h", 2)])

    def test_no_formatter_is_a_failure(self):
        found = check_format.check_files(self.root, ["good.h"], ["no-such-clang-format"])
        self.assertEqual(len(found), 1)
        self.assertIn("is needed", found[0].message)

    def test_an_old_formatter_is_a_failure(self):
        old = self.root / "old-clang-format"
        old.write_text("#!/bin/sh\necho 'clang-format version 13.0.1'\n")
        old.chmod(old.stat().st_mode | stat.S_IXUSR)
        found = check_format.check_files(self.root, ["good.h"], [str(old)])
        self.assertIn("is version 13", found[0].message)

    def test_a_formatter_that_breaks_is_a_failure(self):
        broken = self.root / "broken-clang-format"
        broken.write_text("#!/bin/sh\n[ \"$1\" = --version ] && echo 'clang-format version 14.0.6' && exit 0\nexit 3\n")
        broken.chmod(broken.stat().st_mode | stat.S_IXUSR)
        self.assertEqual(len(check_format.check_files(self.root, ["good.h"], [str(broken)])), 1)


class Documents(unittest.TestCase):
    def test_dead_links_and_names(self):
        body = "[a](CONTRIBUTING.md) [b](no-such.md) `scripts/test` `scripts/no-such` [c](https://example.org/x)\n"
        found = check_documents.check_document(ROOT, "README.md", body)
        self.assertEqual([v.message.split(": ")[1] for v in found], ["no-such.md", "scripts/no-such"])


class Snippets(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)
        (self.root / "main.cpp").write_text("// What.\nint a = 1;\n\nint f() {\n  return a;\n}\n\nint b = 2;\n")

    def lines(self, code, name=" main.cpp"):
        body = f"# A\n```cpp{name}\n{code}```\nText.\n"
        return [v.line for v in check_snippets.check_document(self.root, "a.md", body)]

    def test_code_of_the_file(self):
        for code in ["int a = 1;\n", "  int a = 1;\n\n  int f() {\n", "int f() {\nreturn a;\n}\n", "// What.\n",
                     "int a = 1;\n// ...\nreturn a;\n", "int a = 1;\n\n// ...\n\nint b = 2;\n"]:
            self.assertEqual(self.lines(code), [], code)

    def test_other_code(self):
        self.assertEqual(self.lines("int a = 2;\n"), [3])
        self.assertEqual(self.lines("int a = 1;\nint f() {\n"), [3])  # a line is left out
        self.assertEqual(self.lines("int b = 2;\n// ...\nint a = 1;\n"), [5])  # another order
        self.assertEqual(self.lines("int a = 1;\n// ...\nint c;\n"), [5])
        self.assertEqual(self.lines("int a = 1\n"), [3])
        self.assertEqual(self.lines("int a = 1;\n", " gone.cpp"), [2])
        self.assertEqual(self.lines("int a = 1;\n", ""), [2])


class Reference(unittest.TestCase):
    """On a tree of one header, with the project's own settings."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)
        os.environ.pop("PENSTOCK_REFERENCE_OUTPUT", None)
        for name in ["Doxyfile", "opening_comment.sed", "overview.md"]:
            path = self.root / "docs" / "reference" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes((ROOT / "docs" / "reference" / name).read_bytes())
        for name in ["core", "kernels", "autograd", "nn", "data", "parallel", "models"]:
            (self.root / name).mkdir()

    def violations(self, comment):
        (self.root / "core" / "a.h").write_text(f"// What.\n#pragma once\n\n/// {comment}\nint f(int a);\n")
        return sorted({(v.path, v.line) for v in check_reference.check(self.root)})

    def test_a_comment_that_is_wrong_is_found(self):
        self.assertEqual(self.violations("The square of a."), [])
        self.assertEqual(self.violations("The square. @param b its side"), [("core/a.h", 4)])
        self.assertEqual(self.violations("The square of a <side>."), [("core/a.h", 4)])

    def test_no_doxygen_is_a_failure(self):
        found = check_reference.check(self.root, "no-such-doxygen")
        self.assertEqual(len(found), 1)
        self.assertIn("is needed", found[0].message)


class WholeRun(unittest.TestCase):
    """The scripts as ctest starts them: exit status and output, on a tree with and without a planted file."""

    def run_check(self, name, root):
        return subprocess.run([sys.executable, str(HERE / name), str(root)], capture_output=True, text=True)

    def test_exit_status(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "nn").mkdir()
            (root / "build").mkdir()
            (root / ".clang-format").write_bytes((ROOT / ".clang-format").read_bytes())
            (root / "nn" / "good.h").write_text('// What.\n#include "core/error.h"\n')
            (root / "build" / "made.h").write_text("int *not_ours ;\n")
            for check in ["check_includes.py", "check_text.py", "check_format.py", "check_documents.py"]:
                self.assertEqual(self.run_check(check, root).returncode, 0, check)
            (root / "nn" / "bad.h").write_text('#include "models/gpt2.h"\nint *x ;\n')
            (root / "bad.md").write_text("[gone](gone.md)\n")
            for check, place in [("check_includes.py", "nn/bad.h:1:"), ("check_text.py", "nn/bad.h:1:"),
                                 ("check_format.py", "nn/bad.h:2:"), ("check_documents.py", "bad.md:1:")]:
                done = self.run_check(check, root)
                self.assertEqual(done.returncode, 1, check)
                self.assertIn(place, done.stdout)

    def test_the_list_is_not_empty(self):
        names = sources.listed(ROOT)
        self.assertIn("README.md", names)
        self.assertGreater(len([n for n in names if n.endswith(sources.CPP)]), 10)
        self.assertFalse([n for n in names if n.startswith("build" + os.sep)])


if __name__ == "__main__":
    unittest.main()
