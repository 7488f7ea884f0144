// Package supervise decides what becomes of an actor that panicked, and makes sure that
// somebody hears of it.
//
// Strategy restarts a failed child after a capped, jittered, exponentially growing pause
// and stops it when it fails too often. Recover logs a panic with its stack
// and keeps a panic in Stopping or Stopped from upsetting the actor's end. LogEvents writes dead letters
// and decisions to a log.
//
// It doesn't own any actor's state: what must survive a restart lives above what
// restarts (docs/decisions/002).
package supervise

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

// Config is how a Strategy behaves. All durations are wall-clock time.
type Config struct {
	// The pause before the k-th restart within Period is MinBackoff·2^(k−1), at most
	// MaxBackoff, less a random part of up to a half of it.
	MinBackoff, MaxBackoff time.Duration
	// A child that fails more than MaxRestarts times within Period is stopped.
	MaxRestarts int
	Period      time.Duration
	// Decide answers a failure; nil restarts whatever the reason was. It is called in the
	// supervisor's Receive. A RestartDirective is still subject to MaxRestarts.
	Decide func(reason any) actor.Directive
	// Report hears every decision once, in the supervisor's Receive: it must not block. nil is allowed.
	Report func(Decision)
}

// Decision is what became of a failure.
type Decision struct {
	Child     *actor.PID
	Reason    any // what the child panicked with
	Directive actor.Directive
	Failures  int           // of this child within Period, this one included
	Backoff   time.Duration // until the restart; 0 for other directives
	Exhausted bool          // stopped because it failed more than MaxRestarts times
}

func (d Decision) String() string {
	s := fmt.Sprintf("%s: %v after failure %d: %v", d.Child.GetId(), d.Directive, d.Failures, d.Reason)
	if d.Exhausted {
		s += " (out of restarts)"
	}
	return s
}

// DefaultConfig restarts after 10 ms … 2 s, at most ten times in a minute.
func DefaultConfig() Config {
	return Config{MinBackoff: 10 * time.Millisecond, MaxBackoff: 2 * time.Second, MaxRestarts: 10, Period: time.Minute}
}

// Strategy is an actor.SupervisorStrategy that treats each child by itself. Install it
// with Props; several supervisors may share one.
type Strategy struct {
	cfg         Config
	mu          sync.Mutex
	supervisors map[string]*supervisor // by actor id
}

// supervisor is what the strategy knows of one supervising actor.
type supervisor struct {
	ending   bool              // it is stopping or restarting: its children get, or got, a Stop
	children map[string]*child // those that failed, by actor id, until they end
}

type child struct {
	failures []time.Time // within Period, oldest first; at most MaxRestarts + 1
	due      *restartDue // the pending restart; nil if there is none
}

// restartDue is sent to the supervisor as a failure of the child when the pause is over,
// so that the restart is decided in the supervisor's own turn: a Restart that follows a
// Stop would bring a stopped child back to life.
type restartDue struct{ timer *time.Timer }

var _ actor.SupervisorStrategy = (*Strategy)(nil)

// New returns a strategy. It panics if cfg has no MaxBackoff ≥ MinBackoff ≥ 0 or no Period > 0.
func New(cfg Config) *Strategy {
	if cfg.MinBackoff < 0 || cfg.MaxBackoff < cfg.MinBackoff || cfg.Period <= 0 {
		panic(fmt.Sprintf("supervise: impossible configuration %+v", cfg))
	}
	return &Strategy{cfg: cfg, supervisors: make(map[string]*supervisor)}
}

// Props makes the actor a supervisor by this strategy: it installs the strategy, and
// follows the actor's own life for it. That costs an allocation for each message; an actor
// of the data path takes actor.WithSupervisor and calls Follow instead.
func (s *Strategy) Props() actor.PropsOption {
	return func(p *actor.Props) {
		actor.WithSupervisor(s)(p)
		actor.WithReceiverMiddleware(s.follow)(p)
	}
}

// Stop stops a child for good, and drops its pending restart. A supervisor that stops a
// child by hand uses it instead of ctx.Stop.
func (s *Strategy) Stop(ctx actor.Context, pid *actor.PID) {
	s.forget(ctx.Self(), pid)
	ctx.Stop(pid)
}

// HandleFailure implements actor.SupervisorStrategy.
func (s *Strategy) HandleFailure(sys *actor.ActorSystem, sup actor.Supervisor, pid *actor.PID, _ *actor.RestartStatistics, reason, message any) {
	self := sup.(interface{ Self() *actor.PID }).Self()
	if due, ok := reason.(*restartDue); ok {
		if s.take(self, pid, due) && slices.ContainsFunc(sup.Children(), pid.Equal) {
			sup.RestartChildren(pid)
		}
		return
	}
	d := Decision{Child: pid, Reason: reason, Directive: actor.RestartDirective}
	if s.cfg.Decide != nil {
		d.Directive = s.cfg.Decide(reason)
	}
	s.decide(sys, self, &d)
	switch d.Directive {
	case actor.ResumeDirective:
		sup.ResumeChildren(pid)
	case actor.StopDirective:
		sup.StopChildren(pid)
	case actor.EscalateDirective:
		sup.EscalateFailure(reason, message)
	}
	sys.EventStream.Publish(&actor.SupervisorEvent{Child: pid, Reason: reason, Directive: d.Directive})
	if s.cfg.Report != nil {
		s.cfg.Report(d)
	}
}

// decide counts the failure, turns one restart too many into a stop, and sets the timer of a restart.
func (s *Strategy) decide(sys *actor.ActorSystem, self *actor.PID, d *Decision) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sup := s.of(self)
	c := sup.children[d.Child.Id]
	if c == nil {
		c = &child{}
		sup.children[d.Child.Id] = c
	}
	d.Failures = c.failed(time.Now(), s.cfg.Period, s.cfg.MaxRestarts+1)
	if d.Directive == actor.RestartDirective && d.Failures > s.cfg.MaxRestarts {
		d.Directive, d.Exhausted = actor.StopDirective, true
	}
	switch d.Directive {
	case actor.RestartDirective:
		if c.due != nil || sup.ending {
			return // the pending restart serves both; an ending supervisor stops its children
		}
		d.Backoff = s.backoff(d.Failures)
		c.due = arm(sys, self, d.Child, d.Backoff)
	case actor.ResumeDirective: // its failures still count
	default:
		c.cancel()
		delete(sup.children, d.Child.Id)
	}
}

// failed notes a failure and returns how many there were within period; beyond limit it forgets the
// oldest.
func (c *child) failed(now time.Time, period time.Duration, limit int) int {
	old := 0
	for old < len(c.failures) && (now.Sub(c.failures[old]) >= period || len(c.failures)-old >= limit) {
		old++
	}
	c.failures = append(slices.Delete(c.failures, 0, old), now)
	return len(c.failures)
}

// cancel drops the pending restart.
func (c *child) cancel() {
	if c.due != nil {
		c.due.timer.Stop()
		c.due = nil
	}
}

// arm sends the supervisor a restartDue after the pause.
func arm(sys *actor.ActorSystem, self, pid *actor.PID, pause time.Duration) *restartDue {
	due := &restartDue{}
	failure := &actor.Failure{Who: pid, Reason: due}
	due.timer = time.AfterFunc(pause, func() {
		if p, ok := sys.ProcessRegistry.GetLocal(self.Id); ok {
			p.SendSystemMessage(self, failure)
		}
	})
	return due
}

// backoff is the pause before the restart that follows the k-th failure (k ≥ 1).
func (s *Strategy) backoff(k int) time.Duration {
	d := s.cfg.MinBackoff
	for ; k > 1 && d < s.cfg.MaxBackoff; k-- {
		d *= 2
	}
	d = min(d, s.cfg.MaxBackoff)
	return d - rand.N(d/2+1)
}

// take reports whether due is still the child's pending restart, and ends it.
func (s *Strategy) take(self, pid *actor.PID, due *restartDue) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.of(self).children[pid.Id]
	if c == nil || c.due != due {
		return false
	}
	c.due = nil
	return true
}

// Follow is called first thing in the Receive of a supervisor that was made without Props.
// It must see every message, since a restart that is due must not reach a child
// that the supervisor's own end has stopped.
func (s *Strategy) Follow(ctx actor.Context) { s.saw(ctx.Self(), ctx.Message()) }

func (s *Strategy) follow(next actor.ReceiverFunc) actor.ReceiverFunc {
	return func(ctx actor.ReceiverContext, env *actor.MessageEnvelope) {
		s.saw(ctx.Self(), env.Message)
		next(ctx, env)
	}
}

// saw notes what the supervisor's messages say about its own life and its children's.
func (s *Strategy) saw(self *actor.PID, message any) {
	switch m := message.(type) {
	case *actor.Started:
		s.begin(self)
	case *actor.Stopping, *actor.Restarting:
		s.end(self)
	case *actor.Stopped:
		s.drop(self)
	case *actor.Terminated:
		s.forget(self, m.Who)
	}
}

func (s *Strategy) begin(self *actor.PID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of(self).ending = false
}

func (s *Strategy) end(self *actor.PID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sup := s.of(self)
	sup.ending = true
	for _, c := range sup.children {
		c.cancel()
	}
	clear(sup.children)
}

// forget drops what is known of a child.
func (s *Strategy) forget(self, pid *actor.PID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sup := s.of(self)
	if c := sup.children[pid.Id]; c != nil {
		c.cancel()
		delete(sup.children, pid.Id)
	}
}

func (s *Strategy) drop(self *actor.PID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.supervisors, self.Id)
}

// of returns what is known of a supervising actor; the caller holds mu.
func (s *Strategy) of(self *actor.PID) *supervisor {
	sup := s.supervisors[self.Id]
	if sup == nil {
		sup = &supervisor{children: make(map[string]*child)}
		s.supervisors[self.Id] = sup
	}
	return sup
}
