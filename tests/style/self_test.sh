#!/usr/bin/env bash
# Feeds scripts/check_style.sh a small tree with one offence of each kind and expects each to be named, and no other.
# usage: self_test.sh PATH/check_style.sh
set -eu

check=$(realpath "$1")
arrows=$(dirname "$check")/arrows.txt
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
cd "$tree"
mkdir -p base nn/onednn/dnnl nn/cuda nn/graph nn/optim nn/host nn/odd data/files data/image data/formats dist/comm/gloo trainer/config trainer/run/step tests/base tests/e2e bench

put() {
	cat > "$1"
}
lines() {
	for ((i = 0; i < $1; i++)); do echo "extern int x$i;"; done
}

# What is allowed.
put base/json.h <<< '#include <stddef.h>'
put base/json.c <<'C'
#include "base/json.h"

#include <jansson.h>
C
put base/mem.c <<'C'
#include <stdlib.h>
void *f(void) { return malloc(1); }
C
put base/fine.c <<'C'
/* malloc(1) and TODO(#12) in a comment,
 * exit(1) on its second line, #include "nn/net.h" */
const char *s = "strcpy(a, b) \" sprintf()"; // rand()
static_assert(1, "x");
void g(struct ops *o) { o->free(s); o->t.exit(1); my_exit(2); _exit(3); snprintf(s, 1, "%c", '"'); }
C
put nn/net.h <<< '#include "base/json.h"'
put nn/onednn/dnnl/shim.c <<'C'
#include <oneapi/dnnl/dnnl.h>
#if CT_WITH_ONEDNN
#endif
C
put base/parallel.c <<'C'
#include <omp.h>
#pragma omp parallel
C
put data/own_impl.h <<< 'int ct__own(void);'
put data/formats/fine.c <<< '#include "data/own_impl.h"'
put nn/optim/optim.h <<< 'int ct_optim(void);'
put trainer/main.c <<'C'
#include "base/json.h"
int main(void) { exit(0); }
C
put trainer/run/step/fine.c <<< '#include "nn/net.h"'
put tests/base/test_ok.c <<'C'
#include <zlib.h>
#include "base/json.h"
int main(void) { free(malloc(1)); assert(1); exit(0); }
C
put tests/e2e/test_ok.c <<< '#include "trainer/loop.h"'
put tests/pause.h <<'C'
#include <time.h>
static inline void pause_briefly(void) { (void)nanosleep(&(struct timespec){0}, 0); }
C
put tests/base/test_waits.c <<'C'
/* sleep(1) */
int main(void) { const char *s = "sleep(1)"; r->sleep(s); go_to_sleep(1); pause(); return poll(&p, 1, 0) + select(n, &fds, NULL, NULL, 0); }
C
put bench/sleeps.c <<< 'void f(void) { sleep(1); }'
put tests/e2e/harness.py <<< 'time.sleep(0.005)'
put tests/e2e/test_fine.py <<< 'pause(); uptime.sleep(3); asleep()'
put trainer/loop.h <<< 'int loop(void);'
lines 700 > data/largest.c
if ! "$check" "$tree" > clean 2>&1; then
	echo "a clean tree is refused:"
	cat clean
	exit 1
fi
lines 501 > data/large.c
"$check" "$tree" 2>&1 | grep -q '^data/large.c:501: warning' || { echo "no warning over 500 lines"; exit 1; }

# What is not: each line of `expected` is the start of a line of output.
put base/up.c <<< '#include "nn/net.h"'
put nn/graph/up.c <<< '#include "nn/optim/optim.h"'
put nn/odd/new.c <<< '#include "nn/optim/optim.h"'
put data/image/peek.c <<< '#include "data/formats/x_impl.h"'
put data/formats/x_impl.h <<< 'int ct_open(int x);'
put nn/onednn/inner.h <<< 'int ct__inner(void);'
put nn/host/peek.c <<< '#include "nn/onednn/inner.h"'
put nn/graph/names.h <<< 'int ct__names(void);'
put nn/side.c <<< '#include "dist/comm/comm.h"'
put data/wild.c <<< '#include "loader.h"'
put dist/tests.c <<< '#include "tests/base/check.h"'
put tests/base/test_up.c <<< '#include "trainer/loop.h"'
put bench/b.c <<< '#include "tests/base/check.h"'
put nn/parse.c <<< '#include <jansson.h>'
put nn/onednn/onednn_engine.c <<< '#  include <dnnl.h>'
put data/x.c <<< '#include <nettle/sha2.h>'
put data/z.c <<< '#include <zlib.h>'
put data/y.c <<< '#include <yaml.h>'
put data/d.c <<< '#include <libdeflate.h>'
put dist/g.cc <<< '#include <gloo/context.h>'
put dist/n.c <<< '#include <nccl.h>'
put nn/cuda/fine.cu <<< '#include <cudnn.h>'
put nn/c.cu <<< '#include <cudnn.h>'
put nn/r.c <<< '#include <cuda_runtime.h>'
put data/j.c <<< '#include <jpeglib.h>'
put nn/omp.c <<< '#include <omp.h>'
put dist/registry.c <<'C'
#if CT_WITH_GLOO
#endif
C
put dist/second.c <<'C'
#if defined(CT_WITH_GLOO)
#endif
C
put nn/calls.c <<'C'
int a = atoi("1");
void b(char *p) { sprintf (p, "x"); /* */ strcpy(p, "y"); }
int c(void) { return x + rand(); }
int d(void) { return system("ls"); }
void *e(void) { return calloc(1, 2); }
void f(void *p) { free(p); }
void g(int x) { assert(x); }
void h(char *p) { char *q = alloca(5); strcat(p, q); }
#pragma omp parallel
C
put tests/base/test_calls.c <<< 'int a = atoi("1");'
put tests/base/test_sleeps.c <<'C'
void a(void) { sleep(1); }
void b(void) { (void)usleep (1); }
void c(void) { while (!done) nanosleep(&t, NULL); }
void d(void) { clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL); }
void e(void) { (void)poll(NULL, 0, 10); }
void f(void) { ppoll( 0, 0, &t, NULL); }
void g(void) { select(0, NULL, NULL, NULL, &t); }
C
put tests/e2e/test_sleeps.py <<'P'
pause()
time.sleep(3)
from time import monotonic, sleep
P
put trainer/leave.c <<< 'void f(void) { exit(3); }'
put data/todo.c <<'C'
/* TODO: later */
int x; // FIXME
C
put data/list.def <<< 'ENTRY(x) /* TODO */'
put base/order.h <<< 'int order(void);'
put base/order.c <<'C'
#include <stdio.h>
#include "base/order.h"
C
put dist/alone.h <<< 'size_t f(void);'
put dist/calls.h <<< 'static inline int call(void) { return undeclared(); }'
lines 701 > data/huge.c
cat > expected <<'E'
base/order.c:1: the first include
base/up.c:1: base must not include "nn/net.h"
bench/b.c:1: bench must not include "tests/base/check.h"
data/d.c:1: only data/files/inflate.c may include <libdeflate.h>
data/formats/x_impl.h:1: ct_open is declared in a private header
data/huge.c:701: 701 lines
data/image/peek.c:1: "data/formats/x_impl.h" is private to data/formats
data/j.c:1: only data/image/jpeg.c and data/image/jpeg_encode.c may include <jpeglib.h>
data/list.def:1: a TODO
data/todo.c:1: a TODO
data/todo.c:2: a TODO
data/wild.c:1: include "loader.h" does not start at the root
data/x.c:1: only base/hash/sha256.c may include <nettle/sha2.h>
data/y.c:1: only trainer/config/yaml_events.c may include <yaml.h>
data/z.c:1: only data/files/inflate.c may include <zlib.h>
dist/alone.h:1: does not compile alone
dist/calls.h:1: does not compile alone
dist/g.cc:1: only dist/comm/gloo/ may include <gloo/context.h>
dist/n.c:1: only dist/comm/nccl/ may include <nccl.h>
dist/second.c:1: CT_WITH_GLOO is read by dist/registry.c
dist/tests.c:1: dist must not include "tests/base/check.h"
nn/c.cu:1: only base/device/cuda/ and nn/cuda/ may include <cudnn.h>
nn/calls.c:1: atoi()
nn/calls.c:2: sprintf()
nn/calls.c:2: strcpy()
nn/calls.c:3: rand()
nn/calls.c:4: system()
nn/calls.c:5: calloc()
nn/calls.c:6: free()
nn/calls.c:7: assert()
nn/calls.c:8: alloca()
nn/calls.c:8: strcat()
nn/calls.c:9: an OpenMP pragma
nn/graph/names.h:1: ct__names is declared in a header that other directories include
nn/graph/up.c:1: nn/graph must not include "nn/optim/optim.h"
nn/host/peek.c:1: "nn/onednn/inner.h" is private to nn/onednn
nn/odd/new.c:1: scripts/arrows.txt does not list nn/odd
nn/onednn/onednn_engine.c:1: only nn/onednn/dnnl/ may include <dnnl.h>
nn/omp.c:1: only base/parallel.c may include <omp.h>
nn/parse.c:1: only base/json.c may include <jansson.h>
nn/r.c:1: only base/device/cuda/ and nn/cuda/ may include <cuda_runtime.h>
nn/side.c:1: nn must not include "dist/comm/comm.h"
tests/base/test_calls.c:1: atoi()
tests/base/test_sleeps.c:1: a test that sleeps
tests/base/test_sleeps.c:2: a test that sleeps
tests/base/test_sleeps.c:3: a test that sleeps
tests/base/test_sleeps.c:4: a test that sleeps
tests/base/test_sleeps.c:5: a test that sleeps
tests/base/test_sleeps.c:6: a test that sleeps
tests/base/test_sleeps.c:7: a test that sleeps
tests/base/test_up.c:1: tests/base must not include "trainer/loop.h"
tests/e2e/test_sleeps.py:2: a test that sleeps
tests/e2e/test_sleeps.py:3: a test that sleeps
trainer/leave.c:1: exit() is called
E

# A directory with too many files, a circle of includes, and a circle that the arrows would allow.
mkdir -p data/many base/process
for ((i = 0; i < 41; i++)); do echo "extern int x;" > "data/many/f$i.c"; done
put base/process/p.h <<< '#include "base/j.h"'
put base/j.h <<< '#include "base/process/q.h"'
put base/process/q.h <<< 'int ct_q(void);'
sed 's#^nn/graph:.*#nn/graph: nn#; $adata/many: data' "$arrows" > circular
cat >> expected <<'E'
data/many:1: 41 source files
scripts/arrows.txt:1: directories include each other in a circle: base -> base/process -> base
scripts/arrows.txt:1: directories include each other in a circle: nn -> nn/graph -> nn
scripts/arrows.txt:1: directories include each other in a circle: nn -> nn/graph -> nn/optim -> nn
E

rc=0
"$check" "$tree" circular > got 2> warnings || rc=$?
if [ $rc -ne 1 ]; then
	echo "exit status $rc, not 1"
	exit 1
fi
failed=0
while IFS= read -r line; do
	if ! awk -v want="$line" 'index($0, want) == 1 { found = 1 } END { exit !found }' got; then
		echo "not named: $line"
		failed=1
	fi
done < expected
if [ "$(wc -l < got)" -ne "$(wc -l < expected)" ]; then
	echo "other offences than expected:"
	while IFS= read -r line; do
		awk -v got="$line" 'index(got, $0) == 1 { found = 1 } END { exit !found }' expected || echo "$line"
	done < got
	failed=1
fi
exit $failed
