package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/polyrail/polyrail/cluster/memnet"
	"github.com/polyrail/polyrail/collective/view"
	"github.com/polyrail/polyrail/test/bubble"
)

// claimed is an incarnation that somebody says a process has, and whether it is taken.
type claimed struct {
	what        string
	take        func(string, uint32, time.Time) error
	incarnation uint32
	later       time.Duration // since the beginning
	taken       bool
}

func expectTaken(t *testing.T, process string, story []claimed) {
	t.Helper()
	now := time.Now()
	for _, c := range story {
		if err := c.take(process, c.incarnation, now.Add(c.later)); (err == nil) != c.taken {
			t.Errorf("%s, incarnation %d: %v", c.what, c.incarnation, err)
		}
	}
}

func TestIncarnationsDoNotJump(t *testing.T) {
	l := newLevels("n1#7", time.Now())
	expectTaken(t, "n2#7", []claimed{
		{"the first word", l.alive, maxFirst + 1, 0, false},
		{"the first word", l.alive, 5, 0, true},
		{"its word", l.alive, 5 + maxStep + 1, 0, false},
		{"an accusation", l.accused, 5 + maxAccused + 1, 0, false},
		{"an accusation", l.accused, 5 + maxAccused, 0, true},
		{"an accusation raises nothing", l.accused, 5 + 2*maxAccused, 0, false},
		{"its word", l.alive, 5 + maxStep, 0, true},
		{"its next word at once", l.alive, 13 + 1, 0, false},
		{"an accusation whose answer finds no room", l.accused, 13 + 1, 0, false},
		{"a true accusation", l.accused, 13, 0, true},
		{"its word after a second", l.alive, 13 + maxPerTime + 1, time.Second, false},
		{"its word after a second", l.alive, 13 + maxPerTime, time.Second, true},
		{"the same word a second later", l.alive, 77, 2 * time.Second, true},
		{"its next word at once", l.alive, 77 + maxStep + 1, 2 * time.Second, false},
		{"its next word at once", l.alive, 77 + maxStep, 2 * time.Second, true},
		{"its word after a year", l.alive, 1 << 31, 365 * 24 * time.Hour, false},
		{"its former word", l.alive, 1, 3 * time.Second, true},
	})
}

// A process answers a claim with the next incarnation. The others must have room for that.
func TestAProcessAnswersWhatTheOthersTake(t *testing.T) {
	l := newLevels("n1#7", time.Now())
	expectTaken(t, "n1#7", []claimed{
		{"a claim after a year of silence", l.alive, 1 + maxAnswer, 365 * 24 * time.Hour, false},
	})
	l = newLevels("n1#7", time.Now())
	expectTaken(t, "n1#7", []claimed{
		{"its own word", l.alive, 1, time.Hour, true},
		{"an accusation", l.accused, 1, time.Hour, true},           // answered by 2
		{"one that was on the way", l.accused, 1, time.Hour, true}, // not answered
		{"a claim", l.alive, 1 + maxAnswer, time.Hour, false},      // would be answered by 6
		{"a claim", l.alive, maxAnswer, time.Hour, true},           // answered by 5
		{"a true accusation without room", l.accused, 5, time.Hour, false},
		{"a true accusation", l.accused, 5, time.Hour + levelInterval, true},
		{"what others believe", l.alive, 50, time.Hour + levelInterval, false},
		{"what others believe, a second later", l.alive, 50, time.Hour + time.Second, true},
		{"another claim at once", l.alive, 51 + maxAnswer, time.Hour + time.Second, false},
	})
}

// taken is by which incarnation a peer knows a process.
func (p peer) taken(process string) uint32 {
	l := &p.guard.levels
	l.mu.Lock()
	defer l.mu.Unlock()
	if known := l.of[process]; known != nil {
		return known.incarnation
	}
	return 0
}

// A node is made to raise its incarnation by thousands of packets to it alone. The others go on to
// believe it: when it is suspected, they take its word.
func TestWhoIsMadeToClimbIsStillBelieved(t *testing.T) {
	for what, climb := range map[string]struct {
		packets int
		ahead   uint32
	}{
		"one packet": {1, maxStep}, "one packet, far ahead": {1, 60}, "thousands": {3000, maxStep}, "small steps": {3000, 1},
	} {
		t.Run(what, func(t *testing.T) {
			withstand(t, func(peers []peer, a *attacker) {
				process := processName("n2", 7)
				for range climb.packets {
					a.send("10.0.0.2:7946", msgAlive,
						alive("n2", 7, peers[1].taken(process)+climb.ahead, "10.0.0.2:7946", staying))
					pass(200 * time.Microsecond)
				}
				for i, p := range peers {
					for ahead := range uint32(maxAccused + 1) {
						a.send(fmt.Sprintf("10.0.0.%d:7946", i+1), msgSuspect,
							claim{Incarnation: p.taken(process) + ahead, Node: process, From: "x"})
					}
				}
			})
		})
	}
}

// A node that is suspected without end answers, and is believed.
func TestAFloodOfSuspicionsExpelsNobody(t *testing.T) {
	withstand(t, func(peers []peer, a *attacker) {
		process := processName("n2", 7)
		for i := range uint32(3000) {
			for j, p := range peers {
				a.send(fmt.Sprintf("10.0.0.%d:7946", j+1), msgSuspect,
					claim{Incarnation: p.taken(process) + i%(maxAccused+2), Node: process, From: "x"})
			}
			pass(time.Millisecond)
		}
		pass(10 * time.Second)
		if got := peers[0].taken(process); got < maxPerTime {
			t.Errorf("n2 has answered %d times", got)
		}
	})
}

func TestNamesThatNoProcessCanHaveAreNotKept(t *testing.T) {
	l := newLevels("n1#7", time.Now())
	longest := processName(strings.Repeat("n", view.MaxNode), 1<<64-1)
	for name, taken := range map[string]bool{"n2#7": true, longest: true, "x" + longest: false, "n2": false, "": false} {
		if err := l.alive(name, 1, time.Now()); (err == nil) != taken {
			t.Errorf("%q: %v", name, err)
		}
		if known := l.of[name] != nil; known != taken {
			t.Errorf("%q: it is kept: %v", name, known)
		}
	}
}

func TestTheStalestOfStrangersAreForgotten(t *testing.T) {
	now := time.Now()
	l := newLevels("n1#7", now)
	l.keep(func() map[string]bool { return map[string]bool{"n2#7": true} })
	if err := l.alive("n2#7", 1, now); err != nil {
		t.Fatal(err)
	}
	for i := range 2 * maxLevels {
		now = now.Add(time.Millisecond)
		if err := l.alive(fmt.Sprintf("x#%x", i+1), 1, now); err != nil {
			t.Fatal(err)
		}
		if len(l.of) > maxLevels {
			t.Fatalf("%d processes are known", len(l.of))
		}
	}
	latest := fmt.Sprintf("x#%x", 2*maxLevels-maxLevels/2)
	for name, kept := range map[string]bool{"n1#7": true, "n2#7": true, "x#1": false, latest: true} {
		if got := l.of[name] != nil; got != kept {
			t.Errorf("%q: it is kept: %v", name, got)
		}
	}
	everybody := map[string]bool{}
	for name := range l.of {
		everybody[name] = true
	}
	for i := range maxLevels - len(l.of) {
		name := fmt.Sprintf("y#%x", i+1)
		everybody[name] = true
		if err := l.alive(name, 1, now); err != nil {
			t.Fatal(err)
		}
	}
	l.keep(func() map[string]bool { return everybody })
	if l.alive("z#1", 1, now) == nil {
		t.Error("a member was forgotten for a stranger")
	}
}

func TestMadeUpProcessesKeepNobodyOut(t *testing.T) {
	bubble.Nodes(t, func(t *testing.T) {
		network := memnet.New()
		peers := startAll(t, network, 2)
		for _, p := range peers {
			for i := range 2 * maxLevels {
				_ = p.guard.levels.alive(fmt.Sprintf("x#%x", i+1), 1, time.Now())
			}
		}
		late := start(t, config(network, "n3", 7, "10.0.0.3:7946", seed))
		for _, p := range peers {
			p.expect(t, "n3#7 joined")
		}
		for _, p := range peers { // they still know each other's incarnations
			if p.taken("n1#7") == 0 || p.taken("n2#7") == 0 {
				t.Error("a member was forgotten")
			}
		}
		closeAll(t, append(peers, late)...)
	})
}
