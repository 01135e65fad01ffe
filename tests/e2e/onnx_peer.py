"""The side of onnx and onnxruntime in test_export.py, run by a Python that has them: onnx_peer.py DIR NAME...

For each NAME, checks DIR/NAME.onnx and compares its outputs for DIR/NAME.input with DIR/NAME.output. Prints one JSON object: for each name the
largest difference relative to the largest output, the outputs' and inputs' names and shapes, the opset and the metadata.
"""
import json
import os
import sys

import numpy as np
import onnx
import onnxruntime

options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 2
options.log_severity_level = 3


def compare(directory, name):
    path = os.path.join(directory, name + ".onnx")
    onnx.checker.check_model(path, full_check=True)
    model = onnx.load(path)
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    (x_info,), (y_info,) = session.get_inputs(), session.get_outputs()
    c, h, w = x_info.shape[1:]
    if y_info.name == "prediction":
        x = np.fromfile(os.path.join(directory, name + ".input"), np.float32).reshape(-1, c, h, w)
    else:
        pixels = np.fromfile(os.path.join(directory, name + ".input"), np.uint8).reshape(-1, h, w, c)
        x = pixels.transpose(0, 3, 1, 2).astype(np.float32) / 255
    want = np.fromfile(os.path.join(directory, name + ".output"), np.float32).reshape(x.shape[0], -1)
    scale = max(1.0, float(np.abs(want).max()))
    error = 0.0
    for rows in ([0, 1, 2], [1], [2, 0]):  # the batch dimension is dynamic
        got = session.run(None, {x_info.name: x[rows]})[0]
        assert got.shape == (len(rows), want.shape[1]), got.shape
        error = max(error, float(np.abs(got - want[rows]).max()) / scale)
    return {"error": error, "spread": float(want.std()), "input": [x_info.name, x_info.type, x_info.shape], "output": [y_info.name, y_info.shape],
            "opset": [[o.domain, o.version] for o in model.opset_import], "metadata": {p.key: p.value for p in model.metadata_props}}


print(json.dumps({name: compare(sys.argv[1], name) for name in sys.argv[2:]}))
