#include "tests/soft_gpu/exec/fiber.h"

#include <stdint.h>
#include <sys/mman.h>

#include "tests/soft_gpu/runtime/runtime_impl.h"

#if FAKE_ASAN
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__x86_64__) && !defined(SOFT__UCONTEXT)
#define SWITCH_BY_HAND 1
#else
#define SWITCH_BY_HAND 0
#include <ucontext.h>
#endif

enum { STACK_BYTES = 128 << 10, GUARD_BYTES = 64 << 10 };

struct soft__fiber {
	char *stack;
	void (*main)(void);
#if SWITCH_BY_HAND
	void *own_sp, *caller_sp;
#else
	ucontext_t own, caller;
#endif
	/* For AddressSanitizer: what it keeps for each side, and the caller's stack. */
	void *own_fake, *caller_fake;
	const void *caller_stack;
	size_t caller_bytes;
};

/* The fiber that is entered for the first time. */
static struct soft__fiber *starting;

#if SWITCH_BY_HAND
void soft__switch_stack(void **from_sp, void *to_sp);
/* Saves the registers that a function must keep on the old stack, and takes them from the new one. */
__asm__(".text\n"
	".globl soft__switch_stack\n"
	".hidden soft__switch_stack\n"
	".type soft__switch_stack, @function\n"
	"soft__switch_stack:\n"
	"	push %rbp\n"
	"	push %rbx\n"
	"	push %r12\n"
	"	push %r13\n"
	"	push %r14\n"
	"	push %r15\n"
	"	mov %rsp, (%rdi)\n"
	"	mov %rsi, %rsp\n"
	"	pop %r15\n"
	"	pop %r14\n"
	"	pop %r13\n"
	"	pop %r12\n"
	"	pop %rbx\n"
	"	pop %rbp\n"
	"	ret\n"
	".size soft__switch_stack, . - soft__switch_stack\n");
#endif

static void start_fiber(void)
{
	struct soft__fiber *f = starting;

#if FAKE_ASAN
	__sanitizer_finish_switch_fiber(NULL, &f->caller_stack, &f->caller_bytes);
#endif
	f->main();
	soft_gpu_fail("a fiber has ended");
}

struct soft__fiber *soft__fiber_create(void (*main)(void))
{
	struct soft__fiber *f = fake_alloc(sizeof(*f));

	/* Pages, of any size that kernels use, that stop a stack that grows too large. */
	f->stack = mmap(NULL, STACK_BYTES + GUARD_BYTES, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (f->stack == MAP_FAILED || mprotect(f->stack, GUARD_BYTES, PROT_NONE) != 0)
		soft_gpu_fail("no memory for the stack of a GPU thread");
	f->stack += GUARD_BYTES;
	f->main = main;
#if SWITCH_BY_HAND
	/* As if it had been left: six registers, the address to return to, and a word that aligns the stack as a call
	 * does. */
	void **sp = (void **)(void *)(f->stack + STACK_BYTES) - 8;

	sp[6] = (void *)(uintptr_t)start_fiber;
	f->own_sp = sp;
#else
	getcontext(&f->own);
	f->own.uc_stack.ss_sp = f->stack;
	f->own.uc_stack.ss_size = STACK_BYTES;
	f->own.uc_link = NULL;
	makecontext(&f->own, start_fiber, 0);
#endif
	return f;
}

void soft__fiber_enter(struct soft__fiber *f)
{
	starting = f;
#if FAKE_ASAN
	__sanitizer_start_switch_fiber(&f->caller_fake, f->stack, STACK_BYTES);
#endif
#if SWITCH_BY_HAND
	soft__switch_stack(&f->caller_sp, f->own_sp);
#else
	swapcontext(&f->caller, &f->own);
#endif
#if FAKE_ASAN
	__sanitizer_finish_switch_fiber(f->caller_fake, NULL, NULL);
#endif
}

void soft__fiber_leave(struct soft__fiber *f)
{
#if FAKE_ASAN
	__sanitizer_start_switch_fiber(&f->own_fake, f->caller_stack, f->caller_bytes);
#endif
#if SWITCH_BY_HAND
	soft__switch_stack(&f->own_sp, f->caller_sp);
#else
	swapcontext(&f->own, &f->caller);
#endif
#if FAKE_ASAN
	__sanitizer_finish_switch_fiber(f->own_fake, &f->caller_stack, &f->caller_bytes);
#endif
}
