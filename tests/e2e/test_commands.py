"""What a newcomer types first: commands that must protect data, name mistakes and say what they did."""

import gzip
import os
import shutil

from harness import OK, USAGE, Case, main


def contents(folder):
    out = {}
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), "rb") as f:
            out[name] = f.read()
    return out


class Digits(Case):
    SIZES = ("--train", 100, "--test", 20)

    def draw(self, folder, *args, expect=OK):
        return self.run_ctrain("data", "digits", "--out", self.path(folder), *self.SIZES, *args, expect=expect)

    def test_real_data_are_kept(self):
        """A set that ctrain did not draw is not replaced, whether complete or not; one that it drew is."""
        self.draw("drawn")
        for name in os.listdir(self.path("drawn")):
            with open(self.path("drawn", name), "rb") as f:
                self.write(f"real/{name}", gzip.compress(gzip.decompress(f.read())))
        for missing in (None, "train-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"):
            with self.subTest(missing=missing):
                shutil.rmtree(self.path("m"), ignore_errors=True)
                shutil.copytree(self.path("real"), self.path("m"))
                if missing:
                    os.unlink(self.path("m", missing))
                before = contents(self.path("m"))
                r = self.draw("m", "--seed", 7, expect=USAGE)
                self.assert_last_says(r, self.path("m") + r"/[a-z0-9-]*-ubyte\.gz exists and was not drawn by ctrain", "hint:.*--out.*--force")
                self.assertEqual(contents(self.path("m")), before)
        self.draw("m", "--seed", 7, "--force")
        self.draw("drawn", "--seed", 7)
        self.assertEqual(contents(self.path("m")), contents(self.path("drawn")))
        # What was interrupted half-way is drawn again.
        os.unlink(self.path("m", "t10k-labels-idx1-ubyte.gz"))
        self.draw("m", "--seed", 7)
        self.assertEqual(contents(self.path("m")), contents(self.path("drawn")))


if __name__ == "__main__":
    main()
