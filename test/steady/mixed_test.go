package steady

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/polyrail/polyrail"
)

// mixed runs one communicator's mix of operations on one rank until rank 0 says that it is enough.
type mixed struct {
	ctx  context.Context
	comm *polyrail.Communicator
	id   int
	end  time.Time
	ops  int
}

// round runs one operation of each kind and checks it. The numbers differ between communicators.
func (m *mixed) round(k int) error {
	n, r := m.comm.Size(), m.comm.Rank()
	size := 1 + (k*7919+m.id*104729)%20_000
	value := func(rank, i int) int64 { return int64(m.id+1)*1_000_003 + int64(rank+1)*int64(i+k) }
	fill := func(n, rank int) []int64 {
		v := make([]int64, n)
		for i := range v {
			v[i] = value(rank, i)
		}
		return v
	}
	check := func(what string, got []int64, want func(i int) int64) error {
		for i, v := range got {
			if v != want(i) {
				return fmt.Errorf("communicator %d, round %d, %s: element %d is %d, want %d",
					m.id, k, what, i, v, want(i))
			}
		}
		m.ops++
		return nil
	}
	sum := func(i int) (s int64) {
		for rank := range n {
			s += value(rank, i)
		}
		return s
	}
	all := fill(size, r)
	if err := polyrail.AllReduce(m.ctx, m.comm, all, polyrail.Sum); err != nil {
		return err
	}
	if err := check("allreduce", all, sum); err != nil {
		return err
	}
	root := k % n
	one := fill(size, r)
	if err := polyrail.Broadcast(m.ctx, m.comm, one, root); err != nil {
		return err
	}
	if err := check("broadcast", one, func(i int) int64 { return value(root, i) }); err != nil {
		return err
	}
	gathered := make([]int64, n*size)
	if err := polyrail.AllGather(m.ctx, m.comm, gathered, fill(size, r)); err != nil {
		return err
	}
	if err := check("allgather", gathered, func(i int) int64 { return value(i/size, i%size) }); err != nil {
		return err
	}
	exchanged := make([]int64, n*size)
	if err := polyrail.AllToAll(m.ctx, m.comm, exchanged, fill(n*size, r)); err != nil {
		return err
	}
	if err := check("alltoall", exchanged,
		func(i int) int64 { return value(i/size, r*size+i%size) }); err != nil {
		return err
	}
	reduced := make([]int64, size)
	if err := polyrail.Reduce(m.ctx, m.comm, reduced, fill(size, r), polyrail.Sum, root); err != nil {
		return err
	}
	if r == root {
		if err := check("reduce", reduced, sum); err != nil {
			return err
		}
	}
	from := (r + n - 1) % n
	message := make([]int64, size)
	if _, err := polyrail.SendRecv(m.ctx, m.comm, fill(size, r), (r+1)%n, k, message, from, k); err != nil {
		return err
	}
	return check("sendrecv", message, func(i int) int64 { return value(from, i) })
}

func (m *mixed) run() error {
	for k := 0; ; k++ {
		if err := m.round(k); err != nil {
			return err
		}
		more := []int32{0}
		if m.comm.Rank() == 0 && time.Now().Before(m.end) {
			more[0] = 1
		}
		if err := polyrail.Broadcast(m.ctx, m.comm, more, 0); err != nil {
			return err
		}
		if more[0] == 0 {
			return nil
		}
	}
}

// Sixteen communicators of four ranks run mixed operations at once: right, and without the heap
// growing.
func TestManyCommunicatorsAtOnce(t *testing.T) {
	const members, communicators = 4, 16
	lasts := time.Second
	if *long {
		lasts = time.Minute
	}
	nodes := loopback(t, members, func(cfg *polyrail.Config) {
		cfg.RankTimeout = 20 * time.Second // the host is busy
	})
	ctx, cancel := context.WithTimeout(context.Background(), lasts+2*time.Minute)
	defer cancel()
	ops := make([]int, members)
	quarter := time.AfterFunc(lasts/4, func() { t.Logf("a quarter in: %s", heap()) })
	defer quarter.Stop()
	each(t, members, func(i int) error {
		base, err := nodes[i].Communicator(ctx, "base", members)
		if err != nil {
			return err
		}
		end := time.Now().Add(lasts)
		var mixes []*mixed
		for id := range communicators {
			c, err := base.Dup(ctx)
			if err != nil {
				return err
			}
			mixes = append(mixes, &mixed{ctx: ctx, comm: c, id: id, end: end})
		}
		errs := make([]error, communicators)
		var all sync.WaitGroup
		for id, m := range mixes {
			all.Go(func() { errs[id] = m.run() })
		}
		all.Wait()
		for _, m := range mixes {
			ops[i] += m.ops
		}
		return errors.Join(errs...)
	})
	t.Logf("at the end: %s; %d operations checked on each rank", heap(), ops[0])
}

func heap() string {
	var s runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&s)
	return fmt.Sprintf("heap of %d KiB in use, %d KiB of the system's, %d goroutines",
		s.HeapInuse>>10, s.Sys>>10, runtime.NumGoroutine())
}
