package aggregation

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/polyrail/polyrail/messages"
)

func TestANodeOffersTheRailsThatItAggregatesOn(t *testing.T) {
	virtual(t, 2, nil, func(b *bed) {
		b.server.Seek("child0", &messages.TreeSeek{Rail: "rail0"})
		b.server.Seek("child0", &messages.TreeSeek{Rail: "nowhere"})
		if len(b.answers) != 0 {
			t.Fatalf("offers of rails that it doesn't aggregate on: %v", b.answers)
		}
		b.form()
		b.answers = nil
		b.server.Seek("child1", &messages.TreeSeek{Rail: "rail1"})
		want := &messages.TreeOffer{Rail: "rail1", Groups: 1, Rails: b.node.member("an").GetRails()}
		if len(b.answers) != 1 || b.answers[0].to != "child1" ||
			b.answers[0].m.GetTreeOffer().String() != want.String() || len(want.GetRails()) != 2 {
			t.Errorf("answers %v, want an offer %v to child1", b.answers, want)
		}
	})
}

func TestRequestsThatMakeNoSenseAreRefused(t *testing.T) {
	long := strings.Repeat("x", 129)
	virtual(t, 3, nil, func(b *bed) {
		for _, c := range []struct {
			change func(m *messages.TreeRequest)
			want   string
		}{
			{func(m *messages.TreeRequest) { m.Group = 0 }, "ids other than 0"},
			{func(m *messages.TreeRequest) { m.Comm = 0 }, "ids other than 0"},
			{func(m *messages.TreeRequest) { m.Name = long }, "name has 129 bytes"},
			{func(m *messages.TreeRequest) { m.Rail = "rail0" }, `doesn't aggregate on rail "rail0"`},
			{func(m *messages.TreeRequest) { m.Rail = strings.Repeat(long, 1<<13) }, "doesn't aggregate on rail"},
			{func(m *messages.TreeRequest) { m.Window = 0 }, "not in 1 to 1024"},
			{func(m *messages.TreeRequest) { m.Window = 1025 }, "not in 1 to 1024"},
			{func(m *messages.TreeRequest) { m.FragmentBytes = 192 }, "multiple of 256"},
			{func(m *messages.TreeRequest) { m.FragmentBytes = 300 }, "multiple of 256"},
			{func(m *messages.TreeRequest) { m.FragmentBytes = 256<<10 + 64 }, "multiple of 256"},
			{func(m *messages.TreeRequest) { m.BcubeBase = 1 }, "at least 2"},
			{func(m *messages.TreeRequest) { m.Members = m.Members[:1] }, "1 members"},
			{func(m *messages.TreeRequest) { m.Members = make([]*messages.ViewMember, 257) }, "257 members"},
			{func(m *messages.TreeRequest) { m.Members[1] = nil }, "a node's name"},
			{func(m *messages.TreeRequest) { m.Members[1].Node = long }, "a node's name"},
			{func(m *messages.TreeRequest) { m.Members[2].Node = "child1" }, "member twice"},
			{func(m *messages.TreeRequest) { m.Members[2].Node = "an" }, "delivery within a node"},
			{func(m *messages.TreeRequest) { m.Size = 2 }, "a communicator of 2 ranks"},
			{func(m *messages.TreeRequest) { m.Size = 1 << 20 }, "a communicator of 1048576 ranks"},
			{func(m *messages.TreeRequest) { m.Hosts = m.Hosts[1:] }, "hosts of 2 ranks, the tree has 3 of 3"},
			{func(m *messages.TreeRequest) { m.Size = 4 }, "hosts of 3 ranks, the tree has 3 of 4"},
			{func(m *messages.TreeRequest) { m.Ranks = []uint32{1} }, "ranks of 1 members, there are 3"},
			{func(m *messages.TreeRequest) { m.Parent = &messages.ViewMember{Node: "an"} }, "delivery within a node"},
			{func(m *messages.TreeRequest) { m.Parent = &messages.ViewMember{Node: "child1"} }, "member twice"},
			{func(m *messages.TreeRequest) { m.Parent = &messages.ViewMember{} }, "the parent, node \"\": a node's name"},
			{func(m *messages.TreeRequest) { m.Parent = &messages.ViewMember{Node: "up"} }, `the parent, node "up": `},
			{func(m *messages.TreeRequest) { m.Members[2].Rails = make([]*messages.ViewRail, 33) },
				"beyond the limits"},
			{func(m *messages.TreeRequest) { m.Members[2].Rails[0].Addr = long + long }, "beyond the limits"},
			{func(m *messages.TreeRequest) { m.Members[2].Rails[0].Name = "ib7" }, `rank 2 (node "child2"): `},
			{func(m *messages.TreeRequest) { m.Members[2].Rails = nil }, `rank 2 (node "child2"): `},
		} {
			m := b.request()
			c.change(m)
			if m.Group != 0 {
				m.Group = uint64(len(b.server.past.refusals)) + 1000
			}
			if got := b.ask("child0", m); !strings.Contains(got, c.want) || len(got) > 1024 {
				t.Errorf("refusal %q, want one with %q", got, c.want)
			}
		}
		b.expectNothingLeft()
	})
}

func TestMemoryAndGroupsAreLimited(t *testing.T) {
	// Three children, and results of two windows.
	const each = (3 + 2) * testWindow * testBytes
	limit := func(c *Config) { c.MemoryLimit = 2*each - 1 }
	virtual(t, 3, limit, func(b *bed) {
		b.form()
		m := b.request()
		m.Group = 78
		const want = "it needs 1310720 bytes, the limit of all groups is 2621439 bytes, 1310720 are reserved"
		if got := b.ask("child0", m); got != want {
			t.Errorf("refusal %q, want %q", got, want)
		}
		b.server.Destroy("child0", &messages.TreeDestroy{Group: testGroup})
		b.expectNothingLeft()
		m.Group = 79
		if got := b.ask("child0", m); got != "" {
			t.Errorf("refused with %q, though memory is free again", got)
		}
	})
	virtual(t, 3, func(c *Config) { c.MaxGroups = 1 }, func(b *bed) {
		b.form()
		m := b.request()
		m.Group = 78
		if got := b.ask("child0", m); got != "1 groups are served, the limit is 1" {
			t.Errorf("refusal %q", got)
		}
	})
}

// What one job takes leaves room for others.
func TestAJobHasAQuota(t *testing.T) {
	const each = (2 + 2) * testWindow * testBytes
	ask := func(b *bed, group, job uint64) string {
		m := b.request()
		m.Group, m.Comm, m.Job = group, group, job
		return b.ask("child0", m)
	}
	for want, tune := range map[string]func(c *Config){
		"2 groups of its job are served, the quota is 2": func(c *Config) { c.JobGroups = 2 },
		"it needs 1048576 bytes, the quota of a job is 3145727, 2097152 are reserved for its job": func(c *Config) {
			c.JobBytes = 3*each - 1
		},
	} {
		virtual(t, 2, tune, func(b *bed) {
			for group := uint64(100); group < 106; group++ {
				if got := ask(b, group, group%3); got != "" {
					t.Errorf("job %d: refused: %s", group%3, got)
				}
			}
			for job := range uint64(3) {
				if got := ask(b, 110+job, job); got != want {
					t.Errorf("job %d: refusal %q, want %q", job, got, want)
				}
			}
			b.server.Destroy("child0", &messages.TreeDestroy{Group: 103}) // of job 1
			synctest.Wait()
			if got := ask(b, 120, 1); got != "" {
				t.Errorf("refused with %q, though there is room again", got)
			}
		})
	}
}

func TestARepeatedRequestIsAnsweredTheSameWay(t *testing.T) {
	virtual(t, 2, nil, func(b *bed) {
		b.form()
		for range 2 {
			if got := b.ask("child0", b.request()); got != "" {
				t.Errorf("refused: %s", got)
			}
		}
		if n := len(b.server.Groups()); n != 1 {
			t.Errorf("%d groups", n)
		}
		if got := b.ask("child1", b.request()); got != "the group's id is in use" {
			t.Errorf("another node's request: %q", got)
		}

		refused := b.request()
		refused.Group, refused.Window = 78, 0
		first := b.ask("child0", refused)
		refused.Window = 1
		if again := b.ask("child0", refused); first == "" || again != first {
			t.Errorf("refused with %q, then %q", first, again)
		}
	})
}

func TestAGroupIsNotMadeAgainAfterItsEnd(t *testing.T) {
	virtual(t, 2, nil, func(b *bed) {
		b.form()
		b.server.Destroy("child1", &messages.TreeDestroy{Group: testGroup})
		if b.server.group(testGroup) == nil {
			t.Fatal("destroyed by a node that didn't ask for it")
		}
		b.server.Destroy("child0", &messages.TreeDestroy{Group: testGroup})
		if b.server.group(testGroup) != nil {
			t.Fatal("still served")
		}
		if got := b.ask("child0", b.request()); !strings.Contains(got, "it has ended") {
			t.Errorf("a late request of an ended group: %q", got)
		}
		synctest.Wait()
		for _, c := range b.children {
			c.expectRevoked() // of several nodes this one alone may have heard of what rank 0 wanted
		}

		overtaken := b.request()
		overtaken.Group = 78
		b.server.Destroy("child0", &messages.TreeDestroy{Group: 78})
		if got := b.ask("child0", overtaken); got != "it was destroyed" {
			t.Errorf("a request that was overtaken by its end: %q", got)
		}
		b.expectNothingLeft()
	})
}

func TestWhatIsRememberedOfRequestsIsBounded(t *testing.T) {
	var p past
	for i := range uint64(3 * maxPast) {
		p.add(asked{i, "a"}, "no")
	}
	if len(p.refusals) != maxPast {
		t.Errorf("%d are remembered", len(p.refusals))
	}
	if _, ok := p.find(asked{3*maxPast - 1, "a"}); !ok {
		t.Error("the last one isn't remembered")
	}
	if _, ok := p.find(asked{2*maxPast - 1, "a"}); ok {
		t.Error("an old one is remembered")
	}
}

func TestAGroupEndsIfNotAllMembersConnect(t *testing.T) {
	virtual(t, 3, nil, func(b *bed) {
		if refusal := b.ask("child0", b.request()); refusal != "" {
			t.Fatal(refusal)
		}
		b.children[0].connect()
		b.children[1].connect()
		<-time.After(connectTimeout - time.Second)
		if b.server.group(testGroup) == nil {
			t.Fatal("it ended before the time is over")
		}
		<-time.After(2 * time.Second)
		b.expectNothingLeft()
		r := b.children[1].expectRevoked()
		if !strings.Contains(r.GetReason(), `child2`) || !strings.Contains(r.GetReason(), "timed out after 10s") ||
			r.GetMismatch() {
			t.Errorf("told: %v", r)
		}
	})
}
