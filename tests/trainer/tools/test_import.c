/* Launch lines of the tutorials, and the commands that replace them. The names of rows are those of docs/FEATURES.md.
 */
#include "tests/trainer/tmpdir.h"

#include "trainer/config/import/import_impl.h"
#include "trainer/tools/commands/commands.h"

static const struct {
	const char *row, *line, *command;
	const char *note; /* a part of the comments; NULL: there are none */
} lines[] = {
	{"42 torch.distributed.launch",
	 "python -m torch.distributed.launch --nproc_per_node=4 YOUR_TRAINING_SCRIPT.py --arg1 --arg2 3",
	 "ctrain CONFIG.yaml --procs 4", "# not translated: --arg1 --arg2 3\n"},
	{"43 two nodes",
	 "$ python -m torch.distributed.launch --nproc_per_node=4 --nnodes=2 --node_rank=0 --master_addr=\"192.168.1.1\" \\\n"
	 "    --master_port=1234 toy.py",
	 "ctrain configs/toy_ddp.yaml --procs 4 --nodes 2 --node-rank 0 --master-addr 192.168.1.1 --master-port 1234",
	 NULL},
	{"44 torchrun",
	 "torchrun --nnodes 2 --node_rank 1 --nproc-per-node 4 --master_addr 10.0.0.1 --master_port 29500 main.py --lr 0.1",
	 "ctrain configs/imagenet_folders.yaml --nodes 2 --node-rank 1 --procs 4 --master-addr 10.0.0.1 --master-port 29500 "
	 "optim.lr=0.1 batch.per_rank=256",
	 "# the config has main.py's recipe, but another order of the samples, and precision=auto"},
	{"44 environment", "CUDA_VISIBLE_DEVICES=0,1 OMP_NUM_THREADS=2 torchrun --nproc_per_node gpu toy.py",
	 "CUDA_VISIBLE_DEVICES=0,1 ctrain configs/toy_ddp.yaml --procs auto launch.threads=2 device=cuda", NULL},
	{"45 standalone", "torchrun --standalone --nproc_per_node=2 multigpu_torchrun.py 50 10",
	 "ctrain configs/toy_ddp.yaml --procs 2 train.epochs=50 checkpoint.every_epochs=10", NULL},
	{"47 options after the script", "torchrun --nproc_per_node 2 toy.py --epochs 3 --nnode 1",
	 "ctrain configs/toy_ddp.yaml --procs 2 --nodes 1 train.epochs=3", NULL},
	{"48 elastic",
	 "torchrun --nnodes=1:4 --nproc_per_node=2 --rdzv_id=job1 --rdzv_backend=c10d --rdzv_endpoint=node0:29400 --max_restarts=0 "
	 "elastic_ddp.py",
	 "ctrain configs/toy_ddp.yaml --nodes 4 --procs 2 --master-addr node0 --master-port 29400 --node-rank 0 dist.run_id=job1",
	 "# --nnodes 1:4: "},
	{"41 mp.spawn", "python toy.py", "ctrain configs/toy_ddp.yaml", NULL},
	{"49 one node", "python mnist-distributed.py -n 1 -g 8 -i 0",
	 "ctrain configs/mnist_ddp.yaml --nodes 1 --procs 8 --node-rank 0", NULL},
	{"50 unequal nodes", "python src/mnist-distributed.py -n 2 -g 8,2 -i 1 --epochs 5",
	 "ctrain configs/mnist_ddp.yaml --nodes 2 --procs 8,2 --node-rank 1 --master-addr ADDRESS train.epochs=5",
	 "# replace ADDRESS by the address of the first node"},
	{"51 ImageNet example",
	 "python main.py -a resnet50 --dist-url 'tcp://10.0.0.1:23456' --dist-backend 'nccl' --multiprocessing-distributed "
	 "--world-size 2 --rank 1 -b 256 /data/imagenet",
	 "ctrain configs/imagenet_folders.yaml --nodes 2 --node-rank 1 --master-addr 10.0.0.1 --master-port 23456 "
	 "model.name=resnet50 dist.backend=nccl data.dir=/data/imagenet batch.global=512",
	 "256 on each of 2 nodes"},
	{"51 evaluation", "python main.py -a resnet18 --gpu 0 -e --resume model.pth.tar -j 8 /data/imagenet",
	 "ctrain eval configs/imagenet_folders.yaml --checkpoint model.safetensors --procs 1 --devices 0 model.name=resnet18 "
	 "data.dir=/data/imagenet data.workers=8",
	 "# ctrain reads .safetensors files: convert model.pth.tar once"},
	{"51 default batch",
	 "python main.py --multiprocessing-distributed --world-size 2 --rank 0 --dist-url tcp://a:1 DIR",
	 "ctrain configs/imagenet_folders.yaml --nodes 2 --node-rank 0 --master-addr a --master-port 1 data.dir=DIR batch.global=512",
	 "256 on each of 2 nodes"},
	{"51 other script", "torchrun --nproc_per_node 4 cifar.py --arch resnet20",
	 "ctrain configs/resnet18_cifar10.yaml --procs 4 model.name=resnet20", NULL},
	{"51 resumed", "python main.py --resume checkpoint.pth.tar DIR",
	 "ctrain configs/imagenet_folders.yaml data.dir=DIR", "# --resume: ctrain continues"},
	{"51 GPU on the CPU", "python main.py --gpu 3 --no-accel --dummy DIR",
	 "ctrain configs/imagenet_folders.yaml --procs 1 device=cpu data.name=synthetic data.shape=3,224,224 data.classes=1000 "
	 "data.n_train=1281167 data.n_val=50000",
	 "# the GPU 3 is not used, because the script computes on the CPU\n# DIR is not read, because the data is random\n"},
	{"51 no data", "python main.py --dummy --no-accel -b 8 --wd 1e-4 -p 1 --seed 3",
	 "ctrain configs/imagenet_folders.yaml data.name=synthetic data.shape=3,224,224 data.classes=1000 data.n_train=1281167 "
	 "data.n_val=50000 device=cpu optim.weight_decay=1e-4 log.every=1 run.seed=3 batch.global=8",
	 "# batch.global is"},
	{"51 MNIST example", "python main.py --epochs 2 --gamma 0.7 --test-batch-size 500 --dry-run",
	 "ctrain configs/mnist_ddp.yaml train.epochs=2 schedule.name=step schedule.gamma=0.7 schedule.step_epochs=1 batch.eval=500 train.max_steps=1",
	 NULL},
	{"52 accelerate",
	 "accelerate launch --multi_gpu --num_machines 2 --num_processes 8 --machine_rank 0 --main_process_ip 10.0.0.1 "
	 "--main_process_port 29500 --mixed_precision fp16 --gpu_ids 0,1,2,3 train_cifar.py --learning_rate 0.02",
	 "ctrain configs/resnet18_cifar10.yaml --nodes 2 --node-rank 0 --master-addr 10.0.0.1 --master-port 29500 --devices 0,1,2,3 "
	 "--procs 4 device=cuda precision=fp16 optim.lr=0.02",
	 NULL},
	{"22 tcp", "python start.py --rank 0 --world-size 2 --init-method tcp://10.1.1.20:23456 --backend gloo",
	 "ctrain CONFIG.yaml --nodes 2 --procs 1 --node-rank 0 --master-addr 10.1.1.20 --master-port 23456 dist.backend=gloo",
	 "# replace CONFIG.yaml by"},
	{"23 file", "python toy.py --init-method file:///mnt/nfs/sharedfile --rank 1 --world-size 2",
	 "ctrain configs/toy_ddp.yaml --nodes 2 --procs 1 --node-rank 1 --init file:///mnt/nfs/sharedfile", NULL},
	{"104 srun",
	 "srun -n4 --gres=gpu:2 -p gpu python -m torch.distributed.launch --nproc_per_node=$SLURM_NTASKS_PER_NODE "
	 "--nnodes=$SLURM_NNODES --node_rank=$SLURM_NODEID --master_addr=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1) "
	 "--master_port=$MASTER_PORT toy.py --seed $SEED",
	 "srun -n4 --gres=gpu:2 -p gpu ctrain configs/toy_ddp.yaml run.seed=$SEED", "# start one task for each rank"},
	{"34 mpirun",
	 "mpirun -np 4 -H a:2,b:2 -x PATH --mca btl tcp,self --oversubscribe python train_cifar.py --batch-size 128 &",
	 "mpirun -np 4 -H a:2,b:2 -x PATH --mca btl tcp,self --oversubscribe ctrain configs/resnet18_cifar10.yaml batch.per_rank=128",
	 "# mpirun starts the processes"},
	{"quotes", "python toy.py --run-name \"it's mine\" --data-dir ${HOME}/data # a comment",
	 "ctrain configs/toy_ddp.yaml run.name='it'\\''s mine' data.dir=${HOME}/data", NULL},
};

static void test_lines(void **state)
{
	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(lines); i++) {
		struct ct_str out = {0};

		assert_ok(ct_import_line(lines[i].line, &out));
		const char *text = ct_str_text(&out), *comments = strchr(text, '\n') + 1;
		if (strncmp(text, lines[i].command, strlen(lines[i].command)) != 0 ||
		    text[strlen(lines[i].command)] != '\n' ||
		    (lines[i].note ? !strstr(comments, lines[i].note) : comments[0] != '\0'))
			fail_msg("row %s:\n%s\n%sexpected:\n%s\n# ... %s\n", lines[i].row, lines[i].line, text,
				 lines[i].command, lines[i].note ? lines[i].note : "(no comments)");
		ct_str_release(&out);
	}
}

/* ctrain accepts the commands whose config exists and that have no variables. */
static void test_commands_are_accepted(void **state)
{
	int n = 0;

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(lines); i++) {
		const char *command = strstr(lines[i].command, "ctrain ");
		struct ct_config *cfg = NULL;
		struct ct_words w = {0};
		struct ct_cli cli;

		if (strchr(command, '$') || strstr(command, "CONFIG.yaml"))
			continue;
		assert_ok(ct__words_split(command, &w));
		assert_ok(ct_cli_parse(&ct_commands, (int)w.n, w.all, &cli));
		char *path = ct_path_join(CT_SOURCE_DIR, cli.args[0]);
		if (ct_config_load(path, cli.sets, cli.n_sets, &cfg) < 0)
			fail_msg("%s: %s", command, ct_error_message());
		n++;
		ct_config_destroy(cfg);
		ct_free(path);
		ct_cli_release(&cli);
		ct__words_release(&w);
	}
	assert_true(n > 12);
}

static void test_refused(void **state)
{
	static const struct {
		const char *line, *message;
	} all[] = {
		{"", "\"\" is not a launcher"},
		{"deepspeed train.py", "\"deepspeed\" is not a launcher"},
		{"torchrun \"a.py", "the quote in front of \"a.py\" is not closed"},
		{"torchrun --nnodes=$(hostname a.py", "$(hostname a.py is not closed"},
		{"torchrun --nproc_per_node", "--nproc_per_node needs a value"},
		{"cd x && torchrun a.py", "\"&& torchrun a.py\" is another command"},
		{"torchrun a.py > log", "is another command or a redirection"},
		{"torchrun a.py\npython b.py", "is another command"},
	};
	struct ct_str out = {0};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(all); i++)
		assert_fails(ct_import_line(all[i].line, &out), CT_USAGE, all[i].message);
	assert_fails(ct_import_line("python main.py -a vgg16 DIR", &out), CT_UNSUPPORTED,
		     "ctrain has no model \"vgg16\"");
	assert_non_null(strstr(ct_error_hint_text(), "resnet152"));
	assert_fails(ct_import_line("torchrun train.py --model=vit_b_16", &out), CT_UNSUPPORTED, "\"vit_b_16\"");
	ct_str_release(&out);
}

/* A comment cannot end early and become a command. */
static void test_line_break_in_an_option(void **state)
{
	struct ct_str out = {0};

	(void)state;
	assert_ok(ct_import_line("python toy.py --title 'a\ntouch /tmp/x'", &out));
	assert_non_null(strstr(ct_str_text(&out), "# not translated: --title a\\x0atouch /tmp/x\n"));
	ct_str_release(&out);
}

static void test_row_52_accelerate_file(void **state)
{
	static const char file[] = "compute_environment: LOCAL_MACHINE\n"
				   "debug: false\n"
				   "deepspeed_config: {}\n"
				   "distributed_type: MULTI_CPU\n"
				   "downcast_bf16: 'no'\n"
				   "fsdp_config:\n  fsdp_version: 2\n"
				   "machine_rank: 1\n"
				   "main_process_ip: 10.0.0.1\n"
				   "main_process_port: 29500\n"
				   "main_training_function: main\n"
				   "mixed_precision: 'no'\n"
				   "num_machines: 2\n"
				   "num_processes: 8\n"
				   "something_new: 3\n"
				   "use_cpu: true\n";
	const char *path = in_tmpdir("default_config.yaml");
	struct ct_str out = {0};

	(void)state;
	assert_ok(ct_file_replace(path, file, strlen(file)));
	assert_ok(ct_import_accelerate(path, &out));
	assert_string_equal(
		ct_str_text(&out),
		"ctrain CONFIG.yaml --node-rank 1 --master-addr 10.0.0.1 --master-port 29500 --nodes 2 --procs 4 device=cpu precision=fp32\n"
		"# fsdp_config: ctrain keeps the complete model on each device\n"
		"# replace CONFIG.yaml by a config with the model and the data of your script; configs/ has examples\n"
		"# not translated: something_new: 3;\n");
	ct_str_release(&out);
	assert_fails(ct_import_accelerate(in_tmpdir("missing.yaml"), &out), CT_NOT_FOUND, "missing.yaml");
	assert_ok(ct_file_replace(path, "- 1\n", 4));
	assert_fails(ct_import_accelerate(path, &out), CT_CONFIG, "not a mapping");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lines),
		cmocka_unit_test(test_commands_are_accepted),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_line_break_in_an_option),
		cmocka_unit_test(test_row_52_accelerate_file),
	};

	return cmocka_run_group_tests(tests, tmpdir_setup, tmpdir_teardown);
}
