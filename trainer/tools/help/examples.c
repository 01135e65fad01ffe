/* Descriptions and examples for the help pages, by the name of the command. They are not in the table of commands,
 * because they are long and only the help needs them. Each example is a line; what follows two spaces and '#' is its
 * explanation. */
#include <string.h>

#include "trainer/tools/help/help.h"

static const struct ct_command_text texts[] = {
	{"train",
	 "Starts one process (rank) for each device and writes to the run directory, runs/NAME: metrics.jsonl, "
	 "checkpoints, logs, and the resolved config. Run the same command again to continue after an interruption. The name "
	 "of an example config can be used without a path, for example ctrain smoke.",
	 "ctrain smoke  # a test of the installation; needs no data\n"
	 "ctrain configs/mnist_ddp.yaml  # runs/mnist_ddp\n"
	 "ctrain configs/mnist_ddp.yaml run.name=lr01 optim.lr=0.1 --procs 4\n"
	 "ctrain configs/mnist_ddp.yaml --nodes 2 --node-rank 0 --master-addr a"},
	{"eval", "Prints loss, top-1 and top-5 accuracy. For a run directory, the config in it is used.",
	 "ctrain eval configs/mnist_ddp.yaml --checkpoint best\n"
	 "ctrain eval runs/mnist_ddp"},
	{"predict", NULL,
	 "ctrain predict runs/resnet18_cifar10 cat.png\n"
	 "ctrain predict runs/resnet18_cifar10 cat.png dog.png --top 3 --json"},
	{"plan",
	 "The time of the training is predicted from a few steps that are measured here, on one rank, for about a second. The output says what was measured, and what it does not include.",
	 "ctrain plan configs/mnist_ddp.yaml --procs 4\n"
	 "ctrain plan resnet50_imagenet --assume train=1281167,classes=1000\n"
	 "ctrain plan configs/mnist_ddp.yaml --simulate 1x1..8x1 --link-inter eth10"},
	{"check", "All mistakes are reported at once, each with its line. Data files are looked for, but not decoded.",
	 "ctrain check configs/mnist_ddp.yaml\n"
	 "ctrain check my.yaml optim.lr=0.1"},
	{"config dump", NULL,
	 "ctrain config dump configs/mnist_ddp.yaml --origins\n"
	 "ctrain config dump configs/mnist_ddp.yaml --out my.yaml"},
	{"config docs", NULL, "ctrain config docs --out CONFIG.md"},
	{"config schema", "An editor that supports JSON Schema completes and checks keys with it.",
	 "ctrain config schema --out config.schema.json"},
	{"ckpt show", "PATH is a run directory, a checkpoint or a .safetensors file.",
	 "ctrain ckpt show runs/mnist_ddp\n"
	 "ctrain ckpt show runs/mnist_ddp/checkpoints/best --json"},
	{"ckpt verify", NULL, "ctrain ckpt verify runs/mnist_ddp"},
	{"ckpt export", "The option --out is required.", "ctrain ckpt export runs/mnist_ddp --out mnist.safetensors"},
	{"data digits", NULL, "ctrain data digits --out datasets/mnist"},
	{"data check", "Prints the number of unreadable samples, and lists them in the file given by --out.",
	 "ctrain data check configs/resnet18_cifar10.yaml\n"
	 "ctrain data check datasets/mine --out bad.txt"},
	{"data stats", NULL, "ctrain data stats images/"},
	{"data pack", NULL,
	 "ctrain data pack IMAGES/train 'out/train-%06d.tar' --seekable\n"
	 "ctrain data pack IMAGES/train 'out/train-%06d.tar' --short 256 --shuffle 1"},
	{"data show", NULL,
	 "ctrain data show configs/mnist_ddp.yaml --out grid.png\n"
	 "ctrain data show configs/mnist_ddp.yaml 17 42 --epoch 3\n"
	 "ctrain data show configs/resnet18_cifar10.yaml --before-after\n"
	 "ctrain data show configs/resnet18_cifar10.yaml --mixup data.augment.mixup=0.2"},
	{"init", NULL,
	 "ctrain init images/ --out my.yaml\n"
	 "ctrain init images/ --labels labels.csv"},
	{"export", NULL, "ctrain export runs/mnist_ddp --out mnist.onnx"},
	{"report", NULL, "ctrain report runs/mnist_ddp"},
	{"runs", NULL, "ctrain runs"},
	{"runs clean", NULL, "ctrain runs clean"},
	{"compare", NULL, "ctrain compare runs/mnist_ddp runs/lr01"},
	{"watch", NULL, "ctrain watch runs/mnist_ddp"},
	{"postmortem", NULL, "ctrain postmortem runs/mnist_ddp"},
	{"info", NULL, "ctrain info\nctrain info --json\nctrain info --report runs/mnist_ddp --out report.md"},
	{"doctor", NULL,
	 "ctrain doctor\n"
	 "ctrain doctor configs/mnist_ddp.yaml --nodes 2 --node-rank 0 --master-addr a"},
	{"explain", NULL, "ctrain explain 5\nctrain explain PEER_LOST"},
	{"launch", NULL, "ctrain launch --hosts a:4,b:4 configs/mnist_ddp.yaml"},
	{"import", NULL, "ctrain import \"torchrun --nproc_per_node=4 train_cifar.py --lr 0.1\""},
	{"bench step", NULL,
	 "ctrain bench step configs/mnist_ddp.yaml --steps 50\n"
	 "ctrain bench step configs/mnist_ddp.yaml --procs 2 --trace step.json"},
	{"bench loader", NULL, "ctrain bench loader configs/mnist_ddp.yaml"},
	{"bench data", NULL, "ctrain bench data configs/resnet50_imagenet.yaml --seconds 10"},
	{"bench comm", NULL,
	 "ctrain bench comm configs/smoke.yaml --procs 2\n"
	 "ctrain bench comm configs/smoke.yaml --op allreduce --min 8 --max 1M"},
	{"slurm", NULL, "ctrain slurm configs/mnist_ddp.yaml --nodes 2 --time 2:00:00 --submit"},
	{"slurm status", NULL, "ctrain slurm status\nctrain slurm status 1234"},
	{"version", NULL, "ctrain version"},
	{"man", NULL, "ctrain man | man -l -"},
	{"completion",
	 "Source the script from the startup file of your shell. If ctrain is installed, its scripts are installed, too.",
	 "ctrain completion bash --out ~/.local/share/bash-completion/completions/ctrain"},
	{"help", NULL,
	 "ctrain help plan\n"
	 "ctrain help optim.lr  # a key; a section: ctrain help optim\n"
	 "ctrain help --search warmup"},
};

const struct ct_command_text *ct_command_text(const struct ct_command *c)
{
	char name[40];

	ct_command_name(c, name);
	for (size_t i = 0; i < CT_ARRAY_LEN(texts); i++) {
		if (strcmp(texts[i].name, name) == 0)
			return &texts[i];
	}
	return NULL;
}
