"""What test_export.py shows, for the large models, which differ from the others in their sizes only."""

import unittest

from harness import main
from test_export import LARGE, MEDIUM, ONNX_PYTHON, TORCH_PYTHON, Models


class LargeModels(Models):
    @unittest.skipUnless(TORCH_PYTHON, "no Python with torch (CTRAIN_PYTORCH names one)")
    def test_torch(self):
        for name in LARGE + MEDIUM:
            self.compare_torch([name])

    @unittest.skipUnless(ONNX_PYTHON, "no Python with onnx and onnxruntime (scripts/setup.sh --test installs them into build/onnx)")
    def test_onnx(self):
        for name in LARGE:
            self.compare_onnx([name])


if __name__ == "__main__":
    main()
