/* gloo's algorithms use this transport instead of gloo's own one, which accepts every connection. It has the same
 * structure: an operation that is posted starts at once, and a thread (the loop) continues those that would block.
 *
 * A message is a header with its slot and its length, and then its bytes. Messages of a slot are matched in order. A
 * message of at most kEager bytes, in an operation that no rank completes without the others, is sent at once; the
 * receiver keeps it if no receive is posted yet. Any other message is sent when the receiver has announced, with a
 * header that has no bytes, that its receive is posted. So what a receiver must keep is limited, no message waits
 * behind another one, and long messages are read to their place.
 *
 * Only the loop reads, and it alone ends the operations of a connection that has failed: while it reads into a buffer,
 * no one else may declare this operation ended, because its owner would then free the buffer. A buffer that is
 * destroyed although operations are pending, because of an exception, stops the loop first.
 *
 * A link has two locks, so that the loop can read while another thread sends. rx_lock_ comes before tx_lock_, and both
 * before the lock of a buffer. */
#include "dist/comm/gloo/gloo_transport_impl.hh"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace ctrain
{

namespace
{

constexpr size_t kEager = 32 << 10;
/* The requested size of a socket's send buffer: several messages of gloo's rings, which are at most 1 MiB long, so that
 * they are sent without the loop. */
constexpr int kSendBuffer = 4 << 20;
/* How much the loop reads from one connection before it serves the others. */
constexpr size_t kBudget = 4 << 20;
/* Instead of a length: a receive of the slot has been posted. */
constexpr uint64_t kReady = UINT64_MAX;

/* Either pointer may be null if there is nothing to copy. */
void copy(char *to, const char *from, size_t len)
{
	if (len > 0)
		memcpy(to, from, len);
}

std::string mismatch(size_t sent, size_t expected)
{
	return "a message has " + std::to_string(sent) + " bytes instead of " + std::to_string(expected);
}

} // namespace

/* ---- sending */

Link::Link(Transport &transport, int peer, int fd, bool (*may_be_early)(uint64_t slot))
	: transport_(transport), peer_(peer), fd_(fd), may_be_early_(may_be_early)
{
	setLocalRank(0);
	(void)setsockopt(fd_, SOL_SOCKET, SO_SNDBUF, &kSendBuffer, sizeof(kSendBuffer)); /* the system may give less */
	transport_.watch(EPOLL_CTL_ADD, fd_, this, EPOLLIN);
}

void Link::close()
{
	(void)shutdown(fd_, SHUT_RDWR);
}

void Link::check() const
{
	if (!error_.empty())
		throw gloo::IoException(error_);
}

/* Returns true if a message is sent only after its receive has been announced. */
bool Link::is_announced(uint64_t slot, size_t len) const
{
	return len > kEager || !may_be_early_(slot);
}

/* The caller holds tx_lock_. */
void Link::update_events()
{
	transport_.watch(EPOLL_CTL_MOD, fd_, this, queue_.empty() ? EPOLLIN : EPOLLIN | EPOLLOUT);
}

/* Returns true when the message has been sent, false if the socket's buffer is full. */
bool Link::flush(Outgoing &o)
{
	const size_t total = sizeof(Header) + o.op.len;

	while (o.done < total) {
		iovec parts[2];
		msghdr m = {};
		const size_t in_header = o.done < sizeof(Header) ? o.done : sizeof(Header);
		const size_t in_bytes = o.done - in_header;

		parts[0] = {reinterpret_cast<char *>(&o.header) + in_header, sizeof(Header) - in_header};
		parts[1] = {o.op.p + in_bytes, o.op.len - in_bytes};
		m.msg_iov = parts;
		m.msg_iovlen = 2;
		ssize_t n = sendmsg(fd_, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			if (errno != EAGAIN && errno != EWOULDBLOCK)
				close(); /* the loop then ends all operations */
			return false;
		}
		o.done += static_cast<size_t>(n);
	}
	return true;
}

/* Sends a message, or leaves the rest of it to the loop. The caller holds tx_lock_. */
void Link::transmit(const Header &header, const Operation &op)
{
	Outgoing o = {header, op, 0};

	if (queue_.empty() && flush(o)) {
		if (op.buffer)
			op.buffer->sent(peer_);
		return;
	}
	queue_.push_back(o);
	if (queue_.size() == 1)
		update_events();
}

void Link::send(gloo::transport::UnboundBuffer *b, uint64_t slot, size_t offset, size_t nbytes)
{
	const Operation op = {static_cast<Buffer *>(b), static_cast<char *>(b->ptr) + offset, nbytes};

	std::lock_guard<std::mutex> lock(tx_lock_);

	check();
	op.buffer->begin();
	if (waiting_.count(slot)) { /* it follows a message that waits */
		waiting_[slot].push_back(op);
		return;
	}
	if (is_announced(slot, op.len)) {
		auto it = announced_.find(slot);

		if (it == announced_.end()) {
			waiting_[slot].push_back(op);
			return;
		}
		if (--it->second == 0)
			announced_.erase(it);
	}
	transmit({slot, op.len}, op);
}

/* The receiver has announced a receive. */
void Link::ready(uint64_t slot)
{
	std::lock_guard<std::mutex> lock(tx_lock_);
	auto it = waiting_.find(slot);

	if (it == waiting_.end()) {
		announced_[slot]++;
		return;
	}
	/* The first one waits for this announcement, and short ones that follow it for no other. */
	do {
		const Operation op = it->second.front();

		it->second.pop_front();
		transmit({slot, op.len}, op);
	} while (!it->second.empty() && !is_announced(slot, it->second.front().len));
	if (it->second.empty())
		waiting_.erase(it);
}

/* ---- receiving */

void Link::announce(uint64_t slot)
{
	std::lock_guard<std::mutex> lock(tx_lock_);

	if (error_.empty()) /* otherwise the receive has failed already */
		transmit({slot, kReady}, {nullptr, nullptr, 0});
}

void Link::recv(gloo::transport::UnboundBuffer *b, uint64_t slot, size_t offset, size_t nbytes)
{
	const Operation op = {static_cast<Buffer *>(b), static_cast<char *>(b->ptr) + offset, nbytes};

	{
		std::lock_guard<std::mutex> lock(rx_lock_);
		auto it = early_.find(slot);

		if (it != early_.end()) {
			if (it->second.front().size() != op.len)
				throw std::runtime_error(mismatch(it->second.front().size(), op.len));
			op.buffer->begin();
			copy(op.p, it->second.front().data(), op.len);
			it->second.pop_front();
			if (it->second.empty())
				early_.erase(it);
			op.buffer->received(peer_);
			return;
		}
		check();
		op.buffer->begin();
		receives_[slot].push_back(op);
	}
	if (is_announced(slot, op.len))
		announce(slot);
}

/* Reads more bytes: of a message to their place, otherwise to the staging area. Returns false if there are none. */
bool Link::fill()
{
	char *to = staging_ + staged_to_;
	size_t room = kStaging - staged_to_;

	if (reading_) {
		to = into_.p + n_read_;
		room = into_.len - n_read_;
	}
	ssize_t n = ::recv(fd_, to, room, MSG_DONTWAIT);
	if (n < 0 && errno == EINTR)
		return true;
	if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
		return false;
	if (n <= 0) {
		fail(n == 0 ? "the connection was closed by the peer" : strerror(errno));
		return false;
	}
	may_have_more_ = static_cast<size_t>(n) == room;
	if (reading_)
		n_read_ += static_cast<size_t>(n);
	else
		staged_to_ += static_cast<size_t>(n);
	return true;
}

/* Begins the message whose header is at the front of the staging area. Returns false if the connection has failed. */
bool Link::begin_message()
{
	std::string wrong;
	Header h;

	memcpy(&h, staging_ + staged_from_, sizeof(h));
	staged_from_ += sizeof(h);
	if (h.len == kReady) {
		ready(h.slot);
		return true;
	}
	{
		std::lock_guard<std::mutex> lock(rx_lock_);
		auto it = receives_.find(h.slot);

		if (it != receives_.end() && it->second.front().len != h.len) {
			wrong = mismatch(h.len, it->second.front().len);
		} else if (it != receives_.end()) {
			into_ = it->second.front();
			it->second.pop_front();
			if (it->second.empty())
				receives_.erase(it);
		} else if (is_announced(h.slot, h.len)) {
			wrong = "a message was sent before its receive was announced";
		} else {
			kept_.assign(h.len, 0);
			into_ = {nullptr, kept_.data(), h.len};
		}
	}
	if (!wrong.empty()) {
		fail(wrong);
		return false;
	}
	slot_ = h.slot;
	reading_ = true;
	n_read_ = std::min(into_.len, staged_to_ - staged_from_);
	copy(into_.p, staging_ + staged_from_, n_read_);
	staged_from_ += n_read_;
	return true;
}

/* All bytes of a message have arrived. Returns false if the connection has failed. */
bool Link::end_message()
{
	Operation op = into_;

	reading_ = false;
	if (!op.buffer) {
		/* Its receive may have been posted meanwhile. */
		std::lock_guard<std::mutex> lock(rx_lock_);
		auto it = receives_.find(slot_);

		if (it == receives_.end()) {
			early_[slot_].push_back(std::move(kept_));
			return true;
		}
		op = it->second.front();
		if (op.len == kept_.size()) {
			copy(op.p, kept_.data(), op.len);
			it->second.pop_front();
			if (it->second.empty())
				receives_.erase(it);
		}
	}
	if (!into_.buffer && op.len != kept_.size()) {
		fail(mismatch(kept_.size(), op.len));
		return false;
	}
	op.buffer->received(peer_);
	return true;
}

void Link::read()
{
	size_t budget = kBudget;

	for (may_have_more_ = true; error_.empty();) {
		if (!reading_ && staged_to_ - staged_from_ >= sizeof(Header)) {
			if (!begin_message())
				return;
		} else {
			if (!reading_) {
				memmove(staging_, staging_ + staged_from_, staged_to_ - staged_from_);
				staged_to_ -= staged_from_;
				staged_from_ = 0;
			}
			const size_t before = n_read_ + staged_to_;
			if (!may_have_more_ || budget == 0 || !fill())
				return;
			budget -= std::min(budget, n_read_ + staged_to_ - before);
		}
		if (reading_ && n_read_ == into_.len && !end_message())
			return;
	}
}

/* ---- events and failures */

void Link::handle(uint32_t events)
{
	if (!error_.empty())
		return;
	if (events & EPOLLOUT) {
		std::lock_guard<std::mutex> lock(tx_lock_);

		while (!queue_.empty() && flush(queue_.front())) {
			if (queue_.front().op.buffer)
				queue_.front().op.buffer->sent(peer_);
			queue_.pop_front();
		}
		if (queue_.empty())
			update_events();
	}
	if (events & ~static_cast<uint32_t>(EPOLLOUT))
		read();
}

void Link::fail(const std::string &why)
{
	std::vector<Buffer *> failed;
	{
		std::scoped_lock lock(rx_lock_, tx_lock_);

		if (!error_.empty())
			return;
		error_ = why;
		for (auto &slot : receives_)
			for (auto &op : slot.second)
				failed.push_back(op.buffer);
		for (auto &slot : waiting_)
			for (auto &op : slot.second)
				failed.push_back(op.buffer);
		for (auto &o : queue_)
			failed.push_back(o.op.buffer);
		receives_.clear();
		waiting_.clear();
		queue_.clear();
		transport_.watch(EPOLL_CTL_DEL, fd_, this, 0);
	}
	if (reading_)
		failed.push_back(into_.buffer);
	for (Buffer *b : failed) {
		if (b) /* not an announcement or an early message */
			b->failed(why);
	}
}

} // namespace ctrain
