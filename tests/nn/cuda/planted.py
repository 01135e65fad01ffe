#!/usr/bin/env python3
"""Plants defects in the kernels and in the graphs of the CUDA engine, one at a time, and reports which of them the tests find.

    planted.py [WORD...]     the defects whose file or name contains one of the words; without words, all of them
    planted.py --check       plants none, but checks the table: that each defect can be planted, and that each kernel has one

The defects are planted in a copy of the source tree in build/planted, where the tests of the software GPU are built. The copy is kept, so that
the next call builds only what has changed. Ends with 1 if a defect is missed, or if a kernel has no defect in the table.
"""

import os
import re
import subprocess
import sys

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
COPY = os.path.join(ROOT, "build", "planted")
BUILD = os.path.join(COPY, "build", "release")
LIMIT = 600  # seconds of a test program
SKIPPED = 77
KERNEL = re.compile(r"__global__ void (?:__launch_bounds__\((?:[^()]|\([^()]*\))*\)\s+)?(\w+)\(")

# {file: [(kernel or subject, string that is in the file once, what replaces it, the test of tests/nn/cuda that must fail)]}
# Whitespace in the string stands for any whitespace, so that the formatter may wrap the code.
DEFECTS = {
    "nn/cuda/kernels/arena.cu": [
        ("arena", "x + y;", "x - y;", "arena_kernels"),
        ("arena: stop", "if (!*a.stopped)", "if (*a.stopped >= 0)", "arena_kernels"),
        ("arena: swap", "a.b[i] = x;", "a.b[i] = y;", "arena_kernels"),
        ("take_loss", "*a.metrics = {};", "", "arena_kernels"),
    ],
    "nn/cuda/kernels/bias_backward.cu": [
        ("partial_sums", "if (a.y)", "if (a.y && a.rows == 1)", "kernels"),
        ("partial_sums: second gradient", "if (a.dy2)", "if (a.dy2 && a.rows == 1)", "kernels"),
        ("add_blocks", "(float)sum;", "(float)(sum * 1.001);", "kernels"),
    ],
    "nn/cuda/kernels/columns.cuh": [
        ("column_sums: rows", "(blockIdx.y + 1) / gridDim.y;", "(blockIdx.y + 1) / gridDim.y - (args.rows > 100);", "kernels"),
        ("column_sums: second run", "i += (size_t)COLUMN_RUN * step", "i += step", "layer_kernels"),
        ("column_run: rows left over", "if (FULL || k + m < n)", "", "layer_kernels"),
        ("column_block: registers", "COLUMN_THREADS / x", "4 * COLUMN_THREADS / x", "layer_kernels"),
        ("add_partial: blocks", "i < blocks; i += PARTIAL_Y", "i < blocks - 1; i += PARTIAL_Y", "layer_kernels"),
    ],
    "nn/cuda/kernels/conv_check.cu": [
        ("conv_fill", "h & 2 ? 1.0f : 2.0f", "h & 2 ? 0.0f : 0.0f", "verify"),
        ("conv_sums", "return t->r < a.r;", "return t->r < a.r - 1;", "verify"),
        ("conv_sums: gradient of the weights", "return t->n < a.n;", "return i < 63;", "verify"),
        ("conv_sums: stride", "p % a.stride_h == 0 && ", "", "verify"),
        ("conv_sums: dilation", "a.pad_h + t.r * a.dilation_h", "a.pad_h + t.r", "verify"),
        ("conv_sums: groups", "t.k / kg * cg + t.c", "t.c", "verify"),
        ("conv_sums: bias", "a.per_channel[i] ? e % a.k : e", "e % a.k", "verify"),
        ("conv_sums: ReLU", "a.relu && sum < 0 ? 0 : sum", "sum", "verify"),
    ],
    "nn/cuda/kernels/dropout.cu": [
        ("dropout", ">= drop_below", "< drop_below", "kernels"),
        ("dropout: element", "c * (uint32_t)(a.h * a.w) + pixel", "c + pixel * (uint32_t)a.c", "kernels"),
        ("dropout: drop path", "a.per_row ? 0 :", "", "kernels"),
    ],
    "nn/cuda/kernels/elementwise.cu": [
        ("map: add and ReLU", "y = relu(u + v);", "y = u + v;", "kernels"),
        ("map: backward of ReLU", "v <= 0 ? 0.0f : u", "v < 0 ? 0.0f : u", "kernels"),
        ("map: second gradient", "to_float(x.v[j]) + to_float(c.v[j])", "to_float(x.v[j])", "kernels"),
        ("convert", "from_float<To>(scale * ", "from_float<To>(", "kernels"),
        ("convert: loss scale", "a.scale * *a.loss_scale", "a.scale", "kernels"),
        ("bias", "i % vectors * ct_vector<T>::size", "i % vectors", "kernels"),
        ("bias: ReLU", "a.relu ? relu(y) : y", "y", "kernels"),
    ],
    "nn/cuda/kernels/fold.cu": [
        ("fold", "sqrtf(a.var[k] + a.eps)", "sqrtf(a.var[k])", "kernels"),
        ("fold: bias", "a.bias ? a.bias[k] : 0.0f", "0.0f", "kernels"),
        ("fold: padding", "const bool real = k < a.k;", "const bool real = k < a.kp;", "kernels"),
    ],
    "nn/cuda/kernels/gather.cu": [
        ("gather", "v.flip ? a.w - 1 - x : x", "v.flip ? a.w - x : x", "gather_kernel"),
        ("gather: erasing", "erased ? a.fill[k] :", "", "gather_kernel"),
        ("gather: CutMix", "cut ? 256 - r.weight : r.weight", "r.weight", "gather_kernel"),
        ("gather: rounding", "+ 128) >> 8", ") >> 8", "gather_kernel"),
        ("gather: labels", "a.labels_b[row] = r.label_b;", "a.labels_b[row] = r.label;", "gather_kernel"),
    ],
    "nn/cuda/kernels/groups.cu": [
        ("groups", "c / a.c != k / a.k", "c / a.c > k / a.k", "layer_kernels"),
        ("groups: plane", "k = i / a.cp / a.plane", "k = i / a.cp % a.kp", "layer_kernels"),
        ("groups: grid", "a->kp * a->plane * a->cp", "a->kp * a->cp", "layer_kernels"),
    ],
    "nn/cuda/kernels/input.cu": [
        ("input", "+ p.h) * a.w + w) * a.c;", "+ p.h) * a.w + w) * a.cp;", "kernels"),
        ("input: floats", "x[j * plane]", "x[j]", "kernels"),
        ("input: vectors", "+ vector * V) * plane", "+ vector) * plane", "kernels"),
        ("output", "(row * plane + pixel) * a.cp + c", "(row * plane + pixel) * a.c + c", "stage"),
    ],
    "nn/cuda/kernels/loss.cu": [
        ("rows", "- each * class_weight(a, j)", "", "kernels"),
        ("rows: weight of the smoothing", "each * class_weight(a, j)", "each", "kernels"),
        ("rows: mean weight", "weights / a.k", "1.0", "kernels"),
        ("rows: second label", "d -= weight_b;", "d += weight_b;", "kernels"),
        ("rows: ties of the accuracy", "v >= own : j > label && v > own", "v > own : j > label && v > own", "kernels"),
        ("rows: NaN", "!is_finite(loss) ? 0 :", "", "kernels"),
        ("rows: MSE", "const float slope = 2.0f / (float)a.k;", "const float slope = 2.0f / (float)a.kp;", "kernels"),
        ("rows: empty rows", "if (row >= a.n_valid) {", "if (row > a.n_valid) {", "kernels"),
        ("add_rows", "a.n_valid * t / ADD_BLOCK", "a.n_valid * t / ADD_BLOCK + (t > 0)", "kernels"),
        ("add_rows: earlier batches", "a.metrics->top5 += n5;", "a.metrics->top5 = n5;", "kernels"),
    ],
    "nn/cuda/kernels/norm.cu": [
        ("forward_sums", "squares[j] += v * v;", "squares[j] += v;", "layer_kernels"),
        ("backward_sums", "sum[j] += dj;", "sum[j] += 0.999f * dj;", "layer_kernels"),
        ("backward_sums: second gradient", "if (a.dy2)", "if (false)", "layer_kernels"),
        ("backward_sums: gradient of the residual", "store_vector<T>(a.d, i, d);", "store_vector<T>(a.d, i, load_vector<T>(a.dy, i));", "layer_kernels"),
        ("add_blocks", "second *= (double)a.stat[a.cp + c];", "second *= (double)a.stat[c];", "layer_kernels"),
        ("add_blocks: count", "a.sums[2 * a.c] = (double)a.rows;", "a.sums[2 * a.c] = (double)a.rows + 1;", "layer_kernels"),
        ("finalize", "m * var * count / (count - 1)", "m * var", "layer_kernels"),
        ("finalize: inverse of the count", "*a.inverse = 1 / count;", "*a.inverse = 1 / (count + 1);", "layer_kernels"),
        ("running", "(double)a.running_var[c] + (double)a.eps", "(double)a.running_var[c]", "layer_kernels"),
        ("apply", "y += to_float(r[m].v[j]);", "", "layer_kernels"),
        ("apply: ReLU", "from_float<T>(a.relu ? relu(y) : y)", "from_float<T>(y)", "layer_kernels"),
        ("apply: mask", "a.mask[i[m]] = mask_of(x[m]);", "a.mask[i[0]] = mask_of(x[m]);", "layer_kernels"),
        ("rows_from_end: rows left over", "i[m] = exists ? at - m * step : at;", "i[m] = at;", "layer_kernels"),
        ("rows_from_end: last block", "up_to < b.rows_of_block ? (unsigned)up_to : b.rows_of_block", "b.rows_of_block", "layer_kernels"),
        ("rows_from_end: blocks", "(size_t)blockIdx.y * b.rows_of_block", "blockIdx.y * (b.rows_of_block - 1)", "layer_kernels"),
        ("backward_data", "- sum[j] - from_mean * slope[j]", "- sum[j]", "layer_kernels"),
        ("backward_data: fixed statistics", "c < a.c && !a.fixed;", "c < a.c;", "freeze"),
        ("backward_data: padding", "const bool real = c < a.c &&", "const bool real = c + 1 < a.c &&", "layer_kernels"),
    ],
    "nn/cuda/kernels/normalize.cuh": [
        ("normalize", "/ 255.0f - mean", "/ 256.0f - mean", "kernels"),
    ],
    "nn/cuda/kernels/philox.cuh": [
        ("philox", "round < 10", "round < 9", "kernels"),
    ],
    "nn/cuda/kernels/place.cuh": [
        ("place", "p.i = blockIdx.y * blockDim.x + threadIdx.x;", "p.i = threadIdx.x;", "layer_kernels"),
        ("place_grid: too many rows", "rows > 0x7fffffff", "rows > 0xffffffff", "layer_kernels"),
        ("place_grid: too wide", "width > (size_t)65535 * PLACE_THREADS", "false", "layer_kernels"),
    ],
    "nn/cuda/kernels/pool.cu": [
        ("max_forward", "first || v > best[j]", "first || v >= best[j]", "layer_kernels"),
        ("max_forward: NaN", "|| (is_nan(v) && !is_nan(best[j]))", "", "layer_kernels"),
        ("average_forward", "sum[j] / (float)count", "sum[j] / (float)(a.r * a.s)", "layer_kernels"),
        ("average_backward", "n_rows * taps_inside(", "n_rows * n_rows + 0 * taps_inside(", "layer_kernels"),
        ("max_backward", "two ? tap + b.w.step : -1", "-1", "layer_kernels"),
        ("max_backward: steps", "return {stride / divisor, dilation / divisor};", "return {stride, dilation};", "layer_kernels"),
        ("max_backward: last output", "t.out >= n_out", "t.out > n_out", "layer_kernels"),
    ],
    "nn/cuda/kernels/update.cu": [
        ("norm_sums", "sum += g * g;", "sum += g;", "update_kernels"),
        ("decide", "a.control->clip = clip / scale;", "a.control->clip = clip;", "update_kernels"),
        ("decide: loss", "&& !is_finite((double)*a.loss)", "&& *a.loss < 0", "update_kernels"),
        ("decide: loss scale", "s.scale *= 0.5f;", "", "update_kernels"),
        ("lars_sums", "w2 += w * w;", "w2 += w;", "update_kernels"),
        ("lamb_moments", "u2 += (double)u * (double)u;", "u2 += (double)u;", "update_kernels"),
        ("factors", "s.decay && l2 ? (float)a.weight_decay : 0.0f", "l2 ? (float)a.weight_decay : 0.0f", "update_kernels"),
        ("factors: LARS", "f->clip = (float)(q * (double)clip);", "", "update_kernels"),
        ("apply", "a.nesterov ? d + momentum * buffer : buffer", "buffer", "update_kernels"),
        ("apply: AdamW", "* c.inverse_sqrt_bias2 + c.eps);\n}\n\nstatic __global__ void apply", " + c.eps);\n}\n\nstatic __global__ void apply",
         "update_kernels"),
        ("apply: 16-bit weights", "store_weight(a, at);", "", "update_kernels"),
        ("apply: 16-bit weights after a stop", "store_weight(a, k.offset + i);", ";", "update_kernels"),
    ],
    "nn/cuda/kernels/vector.cuh": [
        ("vector of fp32", "float from_float<float>(float x)\n{\n\treturn x;", "float from_float<float>(float x)\n{\n\treturn x * 1.0001f;", "layer_kernels"),
        ("vector of fp16", "__float2half_rn(x)", "__float2half_rn(x * 1.01f)", "layer_kernels"),
        ("vector of bf16", "__float2bfloat16_rn(x)", "__float2bfloat16_rn(x * 1.05f)", "layer_kernels"),
        ("relu of NaN", "x <= 0 ? 0.0f : x", "x > 0 ? x : 0.0f", "kernels"),
        ("relu_passes", "if (to_float(y.v[j]) <= 0)", "if (to_float(y.v[j]) < 0)", "layer_kernels"),
        ("mask_of", "!(to_float(y.v[j]) <= 0)", "!(to_float(y.v[j]) < 0)", "layer_kernels"),
        ("mask_of: NaN", "!(to_float(y.v[j]) <= 0)", "(to_float(y.v[j]) > 0)", "layer_kernels"),
    ],
    "nn/cuda/cudnn/graph.c": [
        ("stride of a convolution", "stride[2] = {win->stride_h, win->stride_w}", "stride[2] = {win->stride_w, win->stride_h}", "engine"),
        ("dilation of a convolution", "dilation[2] = {win->dilation_h, win->dilation_w}", "dilation[2] = {win->dilation_h, win->dilation_h}", "engine"),
        ("padding of a convolution", "pad[2] = {win->pad_h, win->pad_w}", "pad[2] = {win->pad_w, win->pad_h}", "engine"),
        ("strides of a tensor", "d[1] * d[3], d[1]}", "d[1] * d[2], d[1]}", "engine"),
    ],
    "nn/cuda/compile/conv.c": [
        ("groups of a convolution", "p->type) ? 1 : node->groups", "p->type) ? 1 : 1", "engine"),
        ("fused ReLU", "if (c->relu)\n\t\tct__cudnn_add_pointwise(g, CT__CUDNN_RELU, from, 0, TENSOR_Y)",
         "if (c->relu)\n\t\tct__cudnn_add_pointwise(g, CT__CUDNN_ADD, from, from, TENSOR_Y)", "engine"),
        ("exact fp32", ".exact = p->base.net->opts.precision == CT_PRECISION_FP32", ".exact = false", "engine"),
    ],
    "nn/cuda/compile/layer.c": [
        ("missing bias", ".has_bias = folded || layer->bias >= 0", ".has_bias = folded", "engine"),
        ("missing ReLU", ".relu = g->relu != CUDA_NONE,", ".relu = false,", "engine"),
        ("missing ReLU after the bias", "c->relu && !add)", "false)", "engine"),
        ("missing residual", "rest->residual = c->residual;", "rest->residual = CUDA_NONE;", "level"),
        ("missing ReLU after the residual", "c->relu ? CT__K_ADD_RELU : CT__K_ADD", "CT__K_ADD", "level"),
        ("missing ReLU without a fused plan", "rest->has_bias = c->has_bias;\n\trest->relu = c->relu;", "rest->has_bias = c->has_bias;", "level"),
        ("missing mask of the ReLU", "CT_TRY(ct__cuda_refer(p, &t->bias_backward.y, v->buffer));", "", "engine"),
        ("missing second gradient", "CT_TRY(ct__cuda_refer(p, &t->bias_backward.dy2, dy.second));", ";", "engine"),
        ("eps of a folded norm", ".eps = norm->eps,", ".eps = 0,", "level"),
        ("16-bit gradient of the weights", ".scale = 1.0f,", ".scale = 0.5f,", "engine"),
        ("groups of the weights", ".k = v->shape.c / node->groups", ".k = v->shape.c", "engine"),
    ],
    "nn/cuda/compile/cuda_norm.c": [
        ("missing mask of the ReLU", "t->norm.relu = g->relu != CUDA_NONE;\n\tCT_TRY(ct__cuda_refer(p, &t->norm.dy,",
         "CT_TRY(ct__cuda_refer(p, &t->norm.dy,", "engine"),
        ("missing ReLU", "t->norm.relu = g->relu != CUDA_NONE;\n\tCT_TRY(ct__cuda_refer(p, &t->norm.x,", "CT_TRY(ct__cuda_refer(p, &t->norm.x,", "engine"),
        ("missing second gradient", "CT_TRY(ct__cuda_refer(p, &t->norm.dy2, dy.second));", ";", "engine"),
        ("missing residual", "CT_TRY(ct__cuda_refer(p, &t->norm.residual, p->values[g->residual].buffer));", ";", "engine"),
        ("missing stored mask", "CT_TRY(ct__cuda_refer(p, &t->norm.mask, p->norms[g->norm].mask));", ";", "engine"),
        ("overwritten gradient of the residual", "if (g->add != CUDA_NONE)\n\t\treturn ct__cuda_new_gradient(p, g->norm, dx);", "", "engine"),
    ],
    "nn/cuda/compile/forward.c": [
        ("stride of a pool", ".stride_h = win->stride_h", ".stride_h = win->stride_w", "engine"),
        ("kind of a pool", ".average = node->op != CT_OP_MAX_POOL", ".average = node->op == CT_OP_AVG_POOL", "engine"),
        ("label smoothing", ".smoothing = node->label_smoothing", ".smoothing = 0", "engine"),
        ("key of a dropout", ".node = node->origin,", ".node = 0,", "engine"),
        ("kind of a sum", "relu ? CT__K_ADD_RELU : CT__K_ADD", "CT__K_ADD", "engine"),
    ],
    "nn/cuda/compile/backward.c": [
        ("missing mask of the ReLU", ".op = CT__K_RELU_BACKWARD", ".op = CT__K_ADD", "engine"),
        ("missing second gradient", "CT_TRY(ct__cuda_refer(p, &t->map.c, dy->second));", ";", "engine"),
        ("missing loss scale", "precision == CT_PRECISION_FP16", "precision == CT_PRECISION_BF16", "engine"),
    ],
    "nn/cuda/compile/value.c": [
        ("sum of gradients", "&t->map.b, part)", "&t->map.b, *gradient)", "engine"),
        ("value with two users in place", "from->users > 1 || ", "", "level"),
        ("mask of a ReLU in place", "backward_reads(p, from) || ", "", "engine"),
    ],
}


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def read(path):
    with open(path, "rb") as f:
        return f.read()


def write(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(data)


def copy_tree():
    """Copies the files of the working tree that differ, which also removes a defect that an interrupted call has left."""
    names = run("git", "-C", ROOT, "ls-files", "-z").stdout.split("\0")
    for name in filter(None, names):
        source, copy = os.path.join(ROOT, name), os.path.join(COPY, name)
        if not os.path.isfile(source):
            continue
        data = read(source)
        if not os.path.exists(copy) or read(copy) != data:
            write(copy, data)
            os.chmod(copy, os.stat(source).st_mode)


def build(test):
    done = run("cmake", "--build", BUILD, "--target", f"test_cuda_{test}")
    return "" if done.returncode == 0 else done.stdout[-2000:] + done.stderr[-2000:]


def fails(test):
    """Whether the test fails, and why."""
    try:
        done = run(os.path.join(BUILD, "tests", "nn", "cuda", f"test_cuda_{test}"), cwd=COPY, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return True, "it hangs"
    if done.returncode == SKIPPED:
        sys.exit(f"planted: test_cuda_{test} was skipped")
    said = [line.strip() for line in (done.stderr + done.stdout).splitlines() if re.match(r"ERROR:|\[  ERROR|soft gpu:", line.strip())]
    return done.returncode != 0, re.sub(r"^ERROR: |^\[  ERROR   \] --- ", "", said[0])[:150] if said else f"it ends with {done.returncode}"


def places(old, source):
    """The ranges of the source that are equal to the string of the table."""
    pattern = r"\s+".join(re.escape(word) for word in re.split(r"\s+", old))
    return [match.span() for match in re.finditer(pattern, source)]


def judge(file, old, new, test):
    """Plants one defect. Returns "found", "missed" or "wrong", and the reason."""
    path = os.path.join(COPY, file)
    source = read(path)
    text = source.decode()
    (begin, end), = places(old, text)
    write(path, (text[:begin] + new + text[end:]).encode())
    try:
        why = build(test)
        if why:
            return "wrong", f"the defect does not compile: {why}"
        failed, why = fails(test)
        return ("found" if failed else "missed"), (why if failed else f"test_cuda_{test} passes")
    finally:
        write(path, source)


def check_table(defects):
    """Yields what is wrong with a table."""
    for file, rows in defects.items():
        path = os.path.join(ROOT, file)
        source = read(path).decode() if os.path.isfile(path) else None
        if source is None:
            yield f"{file}: this file does not exist"
            continue
        for subject, old, new, test in rows:
            n = len(places(old, source))
            if n != 1:
                yield f"{file}: {subject}: the string is in the file {n} times, not once: {old}"
            if old == new:
                yield f"{file}: {subject}: the defect changes nothing"
            if not any(os.path.isfile(os.path.join(os.path.dirname(__file__), name)) for name in (f"test_{test}.c", f"test_cuda_{test}.c")):
                yield f"{file}: {subject}: there is no test {test}"
    folder = os.path.join(ROOT, "nn", "cuda", "kernels")
    for name in sorted(n for n in os.listdir(folder) if n.endswith(".cu")):
        rows = defects.get(f"nn/cuda/kernels/{name}", [])
        for kernel in KERNEL.findall(read(os.path.join(folder, name)).decode()):
            if not any(subject.split(":")[0] == kernel for subject, *_ in rows):
                yield f"nn/cuda/kernels/{name}: the kernel {kernel} has no defect in the table"


def self_check():
    """Whether check_table finds what can be wrong."""
    arena = "nn/cuda/kernels/arena.cu"
    row = DEFECTS[arena][0]
    wrong = [
        ({"nn/cuda/kernels/none.cu": [row]}, "this file does not exist"),
        ({arena: [(row[0], "no such string", "", row[3])]}, "in the file 0 times"),
        ({arena: [(row[0], "a", "b", row[3])]}, "not once"),
        ({arena: [(*row[:2], row[1], row[3])]}, "changes nothing"),
        ({arena: [(*row[:3], "none")]}, "there is no test none"),
        ({arena: [row]}, "the kernel take_loss has no defect"),
    ]
    for defects, expected in wrong:
        if not any(expected in offence for offence in check_table({**DEFECTS, **defects})):
            sys.exit(f"planted: check_table does not report: {expected}")


def main():
    words = sys.argv[1:]
    offences = list(check_table(DEFECTS))
    if offences:
        sys.exit("\n".join(f"planted: {offence}" for offence in offences))
    if words == ["--check"]:
        self_check()
        return
    chosen = [(file, *row) for file, rows in DEFECTS.items() for row in rows
              if not words or any(word in f"{file} {row[0]}" for word in words)]
    copy_tree()
    done = run(os.path.join(COPY, "scripts", "build.sh"), "release", "-DCTRAIN_TESTS=ON", "--",
               *(f"test_cuda_{test}" for test in sorted({row[-1] for row in chosen})))
    if done.returncode != 0:
        sys.exit(f"planted: the copy cannot be built: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    for test in sorted({row[-1] for row in chosen}):
        failed, why = fails(test)
        if failed:
            sys.exit(f"planted: test_cuda_{test} fails without a defect: {why}")
    counts = {"found": 0, "missed": 0, "wrong": 0}
    for file, subject, old, new, test in chosen:
        verdict, why = judge(file, old, new, test)
        counts[verdict] += 1
        print(f"{verdict:6} {file} {subject}: {why}", flush=True)
    print(", ".join(f"{n} {verdict}" for verdict, n in counts.items()))
    sys.exit(counts["found"] != len(chosen))


if __name__ == "__main__":
    main()
