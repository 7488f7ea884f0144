package faults

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Parse reads a scenario: one statement a line, # begins a comment. What is not said is as in Default.
// An error names the line; all faults are listed at once.
func Parse(text string) (Scenario, error) {
	p := parser{s: Default()}
	var faults []error
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if err := p.statement(words[0], words[1:]); err != nil {
			faults = append(faults, fmt.Errorf("line %d: %w", i+1, err))
		} else if err := p.late(); err != nil {
			faults = append(faults, fmt.Errorf("line %d: %w", i+1, err))
		}
	}
	slices.SortStableFunc(p.s.Steps, func(a, b Step) int { return cmp.Compare(a.At, b.At) })
	if len(faults) == 0 {
		if err := p.s.Validate(); err != nil {
			faults = append(faults, err)
		}
	}
	if len(faults) > 0 {
		return Scenario{}, fmt.Errorf("scenario: %w", errors.Join(faults...))
	}
	return p.s, nil
}

type parser struct {
	s     Scenario
	known int // steps that were looked at by late
}

// late holds a new step against the number of nodes and rails, which must stand before it.
func (p *parser) late() error {
	for ; p.known < len(p.s.Steps); p.known++ {
		if err := p.s.validateStep(p.s.Steps[p.known]); err != nil {
			p.known = len(p.s.Steps)
			return err
		}
	}
	return nil
}

func (p *parser) statement(word string, args []string) (err error) {
	one := func() string {
		if len(args) != 1 && err == nil {
			err = fmt.Errorf("%s takes one argument, not %d", word, len(args))
		}
		return strings.Join(args, " ")
	}
	number := func(into *int) {
		if arg := one(); err == nil {
			*into, err = count(word, arg)
		}
	}
	switch word {
	case "nodes":
		number(&p.s.Nodes)
	case "rails":
		number(&p.s.Rails)
	case "operations":
		number(&p.s.Operations)
	case "pause":
		if arg := one(); err == nil {
			p.s.Pause, err = duration(arg)
		}
	case "speed":
		if arg := one(); err == nil {
			p.s.Speed, err = size(arg)
		}
	case "sizes":
		return p.sizes(args)
	case "at":
		return p.step(args)
	case "expect":
		return p.expect(args)
	default:
		return fmt.Errorf("%q is no statement (nodes, rails, operations, sizes, pause, speed, at, expect)", word)
	}
	return err
}

func (p *parser) sizes(args []string) error {
	p.s.Sizes = nil
	for _, a := range args {
		n, err := size(a)
		if err != nil {
			return err
		}
		p.s.Sizes = append(p.s.Sizes, int(min(n, maxSize+1)))
	}
	return nil
}

func (p *parser) expect(args []string) (err error) {
	switch {
	case len(args) == 1 && args[0] == "done":
		p.s.Lost, p.s.Broken = -1, -1
	case len(args) == 2 && args[0] == "lost":
		p.s.Lost, err = index("node", args[1])
	case len(args) == 2 && args[0] == "broken":
		p.s.Broken, err = index("node", args[1])
	default:
		err = fmt.Errorf("expect %s: want done, lost NODE or broken NODE", strings.Join(args, " "))
	}
	return err
}

// step reads TIME ACTION TARGET….
func (p *parser) step(args []string) (err error) {
	if len(p.s.Steps) == maxSteps {
		return fmt.Errorf("more than %d steps", maxSteps)
	}
	if len(args) < 2 {
		return errors.New("at: want TIME ACTION and what it is done to")
	}
	var s Step
	if s.At, err = duration(args[0]); err != nil {
		return err
	}
	i := slices.Index(actionNames[:], args[1])
	if i < 0 {
		return fmt.Errorf("%q is no action (%s)", args[1], strings.Join(actionNames[:], ", "))
	}
	s.Do, args = Action(i), args[2:]
	want := map[Action]string{Delay: "NODE RAIL DURATION", Rate: "NODE RAIL SIZE", Kill: "NODE", Stop: "NODE", Panic: "NODE ACTOR", Part: "NODE…", Unite: "nothing"}[s.Do]
	if want == "" {
		want = "NODE RAIL"
	}
	if n := len(strings.Fields(want)); s.Do == Unite && len(args) > 0 || s.Do == Part && len(args) == 0 || s.Do < Part && len(args) != n {
		return fmt.Errorf("%v takes %s, not %q", s.Do, want, strings.Join(args, " "))
	}
	nodes := args
	switch {
	case s.Do == Panic:
		nodes, s.Actor = args[:1], args[1]
	case s.Do.toRail():
		nodes = args[:1]
		if s.Rail, err = rail(args[1]); err != nil {
			return err
		}
	}
	for _, a := range nodes {
		n, err := index("node", a)
		if err != nil {
			return err
		}
		s.Nodes = append(s.Nodes, n)
	}
	switch s.Do {
	case Delay:
		s.Duration, err = duration(args[2])
	case Rate:
		s.Bytes, err = size(args[2])
	}
	p.s.Steps = append(p.s.Steps, s)
	return err
}

func rail(word string) (int, error) {
	if word == "rail*" {
		return AllRails, nil
	}
	return index("rail", word)
}

// index reads "node3".
func index(kind, word string) (int, error) {
	digits, ok := strings.CutPrefix(word, kind)
	n, err := strconv.ParseUint(digits, 10, 16)
	if !ok || err != nil {
		return 0, fmt.Errorf("%q is no %s (want %s0, %s1, …)", word, kind, kind, kind)
	}
	return int(n), nil
}

func count(what, word string) (int, error) {
	n, err := strconv.ParseUint(word, 10, 31)
	if err != nil {
		return 0, fmt.Errorf("%s %q: want a number", what, word)
	}
	return int(n), nil
}

func duration(word string) (time.Duration, error) {
	d, err := time.ParseDuration(word)
	if err != nil || d < 0 || d > maxTime {
		return 0, fmt.Errorf("%q is no time from 0s to %v (want 300ms, 1.5s, …)", word, maxTime)
	}
	return d, nil
}

var units = []struct {
	name  string
	shift uint
}{{"GiB", 30}, {"MiB", 20}, {"KiB", 10}, {"", 0}}

// size reads "100", "64KiB".
func size(word string) (int64, error) {
	for _, u := range units {
		digits, ok := strings.CutSuffix(word, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(digits, 10, 32)
		if err != nil {
			break
		}
		return int64(n) << u.shift, nil
	}
	return 0, fmt.Errorf("%q is no size (want 100, 64KiB, 20MiB, …)", word)
}

func formatSize(n int64) string {
	for _, u := range units {
		if n >= 1<<u.shift && n%(1<<u.shift) == 0 {
			return strconv.FormatInt(n>>u.shift, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

// Validate lists every fault at once, or returns nil.
func (s Scenario) Validate() error {
	var faults []error
	add := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if s.Nodes < 2 || s.Nodes > maxNodes {
		add("%d nodes: want 2 to %d", s.Nodes, maxNodes)
	}
	if s.Rails < 1 || s.Rails > maxRails {
		add("%d rails: want 1 to %d", s.Rails, maxRails)
	}
	if s.Operations < 1 || s.Operations > maxOperations {
		add("%d operations: want 1 to %d", s.Operations, maxOperations)
	}
	if len(s.Sizes) < 1 || len(s.Sizes) > maxSizes {
		add("%d sizes: want 1 to %d", len(s.Sizes), maxSizes)
	}
	for _, n := range s.Sizes {
		if n < 8 || n > maxSize || n%8 != 0 {
			add("size %d: want a multiple of 8 from 8 to %s", n, formatSize(maxSize))
		}
	}
	if s.Pause < 0 || s.Speed < 0 {
		add("pause %v, speed %d: must not be negative", s.Pause, s.Speed)
	}
	if n := max(s.Lost, s.Broken); n >= s.Nodes {
		add("node%d is to be lost, or broken: there are %d nodes", n, s.Nodes)
	}
	if s.Lost >= 0 && s.Broken >= 0 {
		add("node%d is to be lost and node%d broken: one thing at a time", s.Lost, s.Broken)
	}
	if len(s.Steps) > maxSteps {
		add("%d steps: want at most %d", len(s.Steps), maxSteps)
	}
	for i, step := range s.Steps {
		if err := s.validateStep(step); err != nil {
			add("%v: %w", step, err)
		}
		if i > 0 && step.At < s.Steps[i-1].At {
			add("%v: comes after a later step", step)
		}
	}
	return errors.Join(faults...)
}

func (s Scenario) validateStep(step Step) error {
	for _, n := range step.Nodes {
		if n < 0 || n >= s.Nodes {
			return fmt.Errorf("node%d: there are %d nodes", n, s.Nodes)
		}
	}
	if step.Do.toRail() && (step.Rail < AllRails || step.Rail >= s.Rails) {
		return fmt.Errorf("rail%d: there are %d rails", step.Rail, s.Rails)
	}
	least, most := 1, 1
	switch {
	case step.Do > Unite:
		return errors.New("there is no such action")
	case step.Do == Unite:
		least, most = 0, 0
	case step.Do == Part:
		most = s.Nodes
	}
	if n := len(step.Nodes); n < least || n > most {
		return fmt.Errorf("%v of %d nodes: want %d to %d", step.Do, n, least, most)
	}
	if step.At < 0 || step.Duration < 0 || step.Bytes < 0 {
		return fmt.Errorf("time %v, duration %v, %d bytes: must not be negative", step.At, step.Duration, step.Bytes)
	}
	if step.Do == Panic && !slices.Contains(actors, step.Actor) {
		return fmt.Errorf("%q is no actor that can panic (%s)", step.Actor, strings.Join(actors, ", "))
	}
	return nil
}
