/* Writes a Python module with the model as a torch.nn.Module. It needs nothing but PyTorch, and Pillow to read images.
 * Each operation is a template in its row of the table of operations (nn/graph/op.h), in which words in braces stand
 * for operands and attributes; a new operation needs a new word here only if it has a new attribute.
 *
 * Node i becomes the variable v<i>, also if it is an identity. Modules have the names of the nodes, so that the names
 * in the state are those of the weights file, which the module reads itself, as fp32. Names of classes and files are
 * quoted as JSON, whose strings are valid in Python. The reader of images must stay equal to what evaluation does
 * (resize, center crop), and the normalization belongs to the model, not to the reader. */
#include <string.h>

#include "trainer/tools/export/export_impl.h"

static const char loader[] =
	"def load(path=os.path.join(os.path.dirname(os.path.abspath(__file__)), WEIGHTS)):\n"
	"    \"\"\"Returns the model with its weights, ready for inference. path: the safetensors file of the weights.\"\"\"\n"
	"    with open(path, \"rb\") as f:\n"
	"        header = json.loads(f.read(struct.unpack(\"<Q\", f.read(8))[0]))\n"
	"        data = bytearray(f.read())\n"
	"    state = {}\n"
	"    for name, t in header.items():\n"
	"        if name != \"__metadata__\":\n"
	"            begin, end = t[\"data_offsets\"]\n"
	"            values = torch.frombuffer(data, dtype=torch.float32, offset=begin, count=(end - begin) // 4)\n"
	"            state[name] = values.reshape(t[\"shape\"]).clone()\n"
	"    model = Model()\n"
	"    model.load_state_dict(state)\n"
	"    return model.eval()\n";

static const char drop_path[] =
	"def drop_path(x, p, training):\n"
	"    \"\"\"Stochastic depth: keeps a row with probability 1 - p and scales it by 1 / (1 - p), or sets it to zero.\"\"\"\n"
	"    if not training or p == 0:\n"
	"        return x\n"
	"    keep = torch.rand(x.shape[0], *[1] * (x.dim() - 1), device=x.device) >= p\n"
	"    return x * keep / (1 - p)\n"
	"\n"
	"\n";

static const char image_reader[] =
	"def read_image(path):\n"
	"    \"\"\"Prepares an image file as ctrain does for evaluation. Returns a tensor [C,H,W] with values from 0 to 1.\"\"\"\n"
	"    from PIL import Image%s\n"
	"\n"
	"    image = %s.convert(\"RGB\")\n"
	"    w, h = image.size\n"
	"    size = (RESIZE, RESIZE * h // w) if w <= h else (RESIZE * w // h, RESIZE)\n"
	"    image = image.resize(size, Image.BILINEAR)\n"
	"    x, y = round((size[0] - WIDTH) / 2), round((size[1] - HEIGHT) / 2)\n"
	"    image = image.crop((x, y, x + WIDTH, y + HEIGHT))%s\n"
	"    pixels = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)\n"
	"    return pixels.reshape(HEIGHT, WIDTH, %d).permute(2, 0, 1) / 255\n"
	"\n"
	"\n"
	"if __name__ == \"__main__\":\n"
	"    model = load()\n"
	"    for path in sys.argv[1:]:\n"
	"        with torch.no_grad():\n"
	"            p = torch.softmax(model(read_image(path)[None])[0], 0)\n"
	"        print(path)\n"
	"        for k in p.argsort(descending=True)[:5].tolist():\n"
	"            print(f\"  {100 * p[k]:6.2f} %%  {CLASSES[k] if CLASSES else f'class {k}'}\")\n";

static void add_floats(struct ct_str *out, const char *name, const float *v, int n)
{
	ct_str_addf(out, "%s = [", name);
	for (int i = 0; i < n; i++)
		ct_str_addf(out, "%s%.9g", i ? ", " : "", (double)v[i]);
	ct_str_add(out, "]\n");
}

static enum ct_status add_head(const struct ct_export_model *m, const char *weights, struct ct_str *out)
{
	const struct ct_description *d = m->description;
	const bool image = d->resize > 0 && d->model.loss != CT_LOSS_MSE;
	ct_json *classes = ct_json_array(), *name = ct_json_array();
	struct ct_str text = {0}, quoted = {0};
	enum ct_status st;

	for (int i = 0; i < d->n_classes; i++)
		ct_json_push_str(classes, d->classes[i]);
	ct_json_push_str(name, weights);
	st = ct_json_dump(classes, false, &text); /* a JSON array of strings is a Python list */
	if (st == CT_OK)
		st = ct_json_dump(name, false, &quoted);
	ct_json_destroy(classes);
	ct_json_destroy(name);
	ct_str_addf(out,
		    "\"\"\"Model %s, written by ctrain %s.\n\n  model = load()\n  y = model(x)\n\nx: ", d->model.name,
		    CTRAIN_VERSION);
	ct__export_describe_input(d, out);
	ct_str_addf(out,
		    ".\ny: float32 [N,%d], %s.\n\"\"\"\n\nimport json\nimport os\nimport struct\n%s\nimport torch\n"
		    "from torch import nn\nfrom torch.nn import functional as F\n\nWEIGHTS = %s[0]\nCLASSES = %s\n",
		    d->model.n_outputs, d->model.loss == CT_LOSS_MSE ? "the prediction" : "the logits of the classes",
		    image ? "import sys\n" : "", ct_str_text(&quoted), ct_str_text(&text));
	if (ct__export_normalizes(d)) {
		add_floats(out, "MEAN", d->mean, d->model.input.c);
		add_floats(out, "STD", d->std, d->model.input.c);
	}
	if (image)
		ct_str_addf(out, "RESIZE, HEIGHT, WIDTH = %d, %d, %d\n", d->resize, d->model.input.h, d->model.input.w);
	ct_str_add(out, "\n\n");
	ct_str_release(&text);
	ct_str_release(&quoted);
	return st;
}

/* A node whose line is being written. */
struct line {
	const ct_graph *graph;
	const struct ct_export_value *values;
	int id;
	const struct ct_node *node;
	struct ct_str *out;
};

/* Appends the value of node `of` in the rank that its user needs. */
static void add_operand(struct ct_str *out, const struct ct_export_value *values, int of, bool flat)
{
	if (values[of].flat == flat)
		ct_str_addf(out, "v%d", of);
	else
		ct_str_addf(out, flat ? "torch.flatten(v%d, 1)" : "v%d[:, :, None, None]", of);
}

static const struct ct_shape *input_shape(const struct line *l)
{
	return &ct_graph_node(l->graph, l->node->in[0])->shape;
}

static void add_pair(struct ct_str *out, int height, int width)
{
	ct_str_addf(out, "(%d, %d)", height, width);
}

static void add_input(const struct line *l, int input)
{
	add_operand(l->out, l->values, l->node->in[input], ct__export_is_flat(l->node, &l->values[l->id]));
}

static void add_x(const struct line *l)
{
	add_input(l, 0);
}

static void add_y(const struct line *l)
{
	add_input(l, 1);
}

static void add_any(const struct line *l)
{
	ct_str_addf(l->out, "v%d", l->node->in[0]);
}

static void add_features(const struct line *l)
{
	const struct ct_shape *in = input_shape(l);

	ct_str_addf(l->out, "%d", in->c * in->h * in->w);
}

static void add_c(const struct line *l)
{
	ct_str_addf(l->out, "%d", input_shape(l)->c);
}

static void add_k(const struct line *l)
{
	ct_str_addf(l->out, "%d", l->node->shape.c);
}

static void add_kernel(const struct line *l)
{
	add_pair(l->out, l->node->win.r, l->node->win.s);
}

static void add_stride(const struct line *l)
{
	add_pair(l->out, l->node->win.stride_h, l->node->win.stride_w);
}

static void add_padding(const struct line *l)
{
	add_pair(l->out, l->node->win.pad_h, l->node->win.pad_w);
}

static void add_dilation(const struct line *l)
{
	add_pair(l->out, l->node->win.dilation_h, l->node->win.dilation_w);
}

static void add_groups(const struct line *l)
{
	ct_str_addf(l->out, "%d", l->node->groups);
}

static void add_bias(const struct line *l)
{
	ct_str_add(l->out, l->node->bias >= 0 ? "True" : "False");
}

static void add_axes(const struct line *l)
{
	ct_str_add(l->out, l->values[l->id].flat ? "1" : "2");
}

static void add_eps(const struct line *l)
{
	ct_str_addf(l->out, "%.9g", (double)l->node->eps);
}

static void add_momentum(const struct line *l)
{
	ct_str_addf(l->out, "%.9g", (double)l->node->momentum);
}

static void add_p(const struct line *l)
{
	ct_str_addf(l->out, "%.9g", (double)l->node->p);
}

/* The words in braces of struct ct_op_export. */
static const struct {
	const char *name;
	void (*add)(const struct line *l);
} words[] = {
	{"x", add_x},               /* the first input, in the rank that the operation needs */
	{"y", add_y},               /* the second one */
	{"any", add_any},           /* the first input, in any rank */
	{"features", add_features}, /* number of elements of the input */
	{"c", add_c},               /* its channels */
	{"k", add_k},               /* channels of the output */
	{"axes", add_axes},         /* 1 for vectors, 2 for images */
	{"kernel", add_kernel},
	{"stride", add_stride},
	{"padding", add_padding},
	{"dilation", add_dilation},
	{"groups", add_groups},
	{"bias", add_bias},
	{"eps", add_eps},
	{"momentum", add_momentum},
	{"p", add_p},
};

static enum ct_status add_word(const struct line *l, const char *word, size_t len)
{
	for (size_t i = 0; i < CT_ARRAY_LEN(words); i++) {
		if (strlen(words[i].name) == len && memcmp(words[i].name, word, len) == 0) {
			words[i].add(l);
			return CT_OK;
		}
	}
	return CT_FAIL(CT_BUG, "the description of the operation %s for PyTorch has the unknown word \"%.*s\"",
		       ct_op_name(l->node->op), (int)len, word);
}

/* Appends a template of struct ct_op_export. */
static enum ct_status fill_in(const struct line *l, const char *template)
{
	const char *open, *close;

	for (; (open = strchr(template, '{')) && (close = strchr(open, '}')); template = close + 1) {
		ct_str_add_bytes(l->out, template, (size_t)(open - template));
		CT_TRY(add_word(l, open + 1, (size_t)(close - open - 1)));
	}
	ct_str_add(l->out, template);
	return CT_OK;
}

static struct line line_of(const struct ct_export_model *m, const struct ct_export_value *values, int id,
			   struct ct_str *out)
{
	return (struct line){m->graph, values, id, ct_graph_node(m->graph, id), out};
}

/* Modules are stored by their complete names, which may contain dots and may be names of methods of nn.Module. */
static enum ct_status add_modules(const struct ct_export_model *m, const struct ct_export_value *values,
				  struct ct_str *out)
{
	ct_str_add(out, "class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n");
	for (int i = 1; i < ct_graph_loss(m->graph); i++) {
		const struct line l = line_of(m, values, i, out);
		const char *module = ct_op_info(l.node->op)->exported.python_module;

		if (!module)
			continue;
		ct_str_addf(out, "        self._put(\"%s\", ", l.node->name);
		CT_TRY(fill_in(&l, module));
		ct_str_add(out, ")\n");
	}
	ct_str_add(out, "\n    def _put(self, name, module):\n"
			"        *parents, last = name.split(\".\")\n"
			"        at = self\n"
			"        for parent in parents:\n"
			"            at = at._modules.setdefault(parent, nn.Module())\n"
			"        at._modules[last] = module\n\n"
			"    def _get(self, name):\n"
			"        at = self\n"
			"        for part in name.split(\".\"):\n"
			"            at = at._modules[part]\n"
			"        return at\n\n");
	return CT_OK;
}

static enum ct_status add_operation(const struct ct_export_model *m, const struct ct_export_value *values, int i,
				    struct ct_str *out)
{
	const struct line l = line_of(m, values, i, out);
	const struct ct_op_export *e = &ct_op_info(l.node->op)->exported;

	ct_str_addf(out, "        v%d = ", i);
	if (e->python_module)
		ct_str_addf(out, "module(\"%s\")(", l.node->name);
	CT_TRY(fill_in(&l, e->python_module ? "{x})" : e->python));
	ct_str_add(out, "\n");
	return CT_OK;
}

static enum ct_status add_forward(const struct ct_export_model *m, const struct ct_export_value *values,
				  struct ct_str *out)
{
	const int loss = ct_graph_loss(m->graph);

	ct_str_add(out, "    def forward(self, v0):\n        module = self._get\n");
	if (ct__export_normalizes(m->description))
		ct_str_add(
			out,
			"        v0 = (v0 - v0.new_tensor(MEAN)[:, None, None]) / v0.new_tensor(STD)[:, None, None]\n");
	for (int i = 1; i < loss; i++)
		CT_TRY(add_operation(m, values, i, out));
	ct_str_add(out, "        return ");
	add_operand(out, values, ct_graph_node(m->graph, loss)->in[0], true);
	ct_str_add(out, "\n\n\n");
	return CT_OK;
}

static bool has_drop_path(const ct_graph *g)
{
	for (int i = 0; i < ct_graph_n_nodes(g); i++) {
		if (ct_graph_node(g, i)->op == CT_OP_DROP_PATH)
			return true;
	}
	return false;
}

enum ct_status ct__export_python(const struct ct_export_model *m, const char *weights_name, struct ct_str *out)
{
	const struct ct_description *d = m->description;
	const bool gray = d->model.input.c == 1;
	struct ct_export_value *values;

	CT_TRY(add_head(m, weights_name, out));
	CT_TRY_ALLOC(values = CT_NEW_ARRAY(struct ct_export_value, (size_t)ct_graph_n_nodes(m->graph)));
	ct__export_values(m->graph, values);
	if (has_drop_path(m->graph))
		ct_str_add(out, drop_path);
	enum ct_status st = add_modules(m, values, out);
	if (st == CT_OK)
		st = add_forward(m, values, out);
	ct_str_add(out, loader);
	if (d->resize > 0 && d->model.loss != CT_LOSS_MSE) {
		ct_str_add(out, "\n\n");
		ct_str_addf(out, image_reader, d->exif ? ", ImageOps" : "",
			    d->exif ? "ImageOps.exif_transpose(Image.open(path))" : "Image.open(path)",
			    gray ? ".convert(\"L\")" : "", d->model.input.c);
	}
	ct_free(values);
	return st == CT_OK ? ct_str_status(out) : st;
}
