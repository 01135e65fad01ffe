"""Short runs whose losses the engine ref computes when the bundle is made (reference.py), and a GPU later (correct.py)."""

MNIST = ("data.name=mnist", "data.dir={data}/mnist")
SYNTHETIC = ("data.name=synthetic", "data.shape=[3,16,16]", "data.n_train=512", "data.classes=10")
STEPS, DRY_STEPS = 20, 4

# name: config (in configs/ of the bundle), keys. The learning rates are low: with usual ones, ReLU and max pooling let a rounding error grow
# tenfold every few steps, also between the engines ref and onednn (resnet20 with 0.005: from 1e-7 to 5e-3 in 20 steps; with 0.0001: to 2e-6).
CASES = {
    "mlp": ("bench/mlp.yaml", (*MNIST, "model.dropout=0.1", "optim.lr=0.02")),
    "convnet": ("bench/convnet.yaml", (*MNIST, "batch.per_rank=32", "optim.lr=0.0002", "data.augment.crop_padding=2")),
    "resnet20": ("bench/convnet.yaml", (*SYNTHETIC, "model.name=resnet20", "batch.per_rank=16", "optim.lr=0.0001", "model.label_smoothing=0.1")),
    "bottleneck": ("bench/convnet.yaml", (
        *SYNTHETIC, "model.name=layers", "batch.per_rank=16", "optim.name=adamw", "optim.lr=0.001", "optim.clip_norm=1", "train.ema=0.9",
        "train.accumulate=2", "model.layers=[conv2d 16 kernel=3 padding=1 bias=false, batch_norm, relu name=r, conv2d 8 kernel=1 bias=false, "
        "batch_norm, relu, conv2d 8 kernel=3 padding=1 bias=false, batch_norm, relu, conv2d 16 kernel=1 bias=false, batch_norm, add from=r, relu, "
        "avg_pool 2, dropout 0.1, linear 10]")),
}


def sets_of(case, data, steps, dry=False):
    """dry: with small batches, because the software GPU is slow."""
    config, sets = CASES[case]
    return config, [s.format(data=data) for s in sets] + [f"train.max_steps={steps}", "log.every=1"] + ["batch.per_rank=8"] * dry
