package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/polyrail/polyrail"
)

const (
	rows      = 240 // of the data set: y = weights·x, which every worker can make
	features  = 4
	rate      = 0.1                  // of learning
	pace      = 2 * time.Millisecond // of a step: stands for the work on the gradient
	patience  = 10 * time.Second     // with members that neither die nor shrink
	groupName = "train"
)

// weights are what the training is to find.
var weights = [features]float32{2, -1, 0.5, 3}

// trainer is one worker: its copy of the model and how far it has come. Copies are equal on all
// members after each step.
type trainer struct {
	node   *polyrail.Node
	world  int // members of the whole group
	report func(step, size int, loss float32)
	stop   <-chan struct{}

	group *polyrail.Communicator
	known map[string]uint64 // incarnations of the members of the last whole group: not newcomers
	model [features]float32
	step  int64
}

// train steps until all members want to stop, through losses of members and their return.
func (t *trainer) train(ctx context.Context) error {
	if err := t.formWhole(ctx); err != nil {
		return err
	}
	for {
		done, whole, err := t.next(ctx)
		switch {
		case err != nil:
			err = t.goOn(ctx)
		case done:
			return t.group.Close(ctx)
		case whole: // everybody sees the lost ones back
			if err = t.group.Close(ctx); err == nil {
				err = t.formWhole(ctx)
			}
		}
		if err != nil {
			return err
		}
	}
}

// next takes one step. Besides the gradient the sum carries two votes: to stop, and to form the
// whole group again. An average of 1 says that all members vote so, and all see the same average.
func (t *trainer) next(ctx context.Context) (done, whole bool, err error) {
	<-time.After(pace)
	var sum [features + 3]float32
	loss := t.gradient(sum[:features])
	sum[features] = loss
	select {
	case <-t.stop:
		sum[features+1] = 1
	default:
	}
	if t.group.Size() < t.world && t.group.Size()+t.newcomers() >= t.world {
		sum[features+2] = 1
	}
	if err := polyrail.AllReduce(ctx, t.group, sum[:], polyrail.Avg); err != nil {
		return false, false, err
	}
	for i := range t.model {
		t.model[i] -= rate * sum[i]
	}
	t.step++
	t.report(int(t.step), t.group.Size(), sum[features])
	return sum[features+1] == 1, sum[features+2] == 1, nil
}

// gradient is that of the squared error over this member's part of the rows. The parts follow from
// rank and size, so the survivors take over what a lost member had.
func (t *trainer) gradient(g []float32) (loss float32) {
	mine := 0
	for row := t.group.Rank(); row < rows; row += t.group.Size() {
		var x [features]float32
		var err float32
		for i := range x {
			x[i] = float32((row*(i+3)*7)%11)/5 - 1
			err += (t.model[i] - weights[i]) * x[i]
		}
		for i := range g {
			g[i] += 2 * err * x[i]
		}
		loss += err * err
		mine++
	}
	for i := range g {
		g[i] /= float32(mine)
	}
	return loss / float32(mine)
}

// goOn is what follows an error: the members that are left go on, or, where they are too few, wait
// for all.
func (t *trainer) goOn(ctx context.Context) error {
	shrinking, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	group, _, err := t.group.Shrink(shrinking)
	if err != nil {
		t.group.Close(shrinking) // it is broken; what matters is the next one
		return t.formWhole(ctx)
	}
	t.group = group
	return t.agree(ctx)
}

// formWhole waits for all members, old and new.
func (t *trainer) formWhole(ctx context.Context) (err error) {
	if t.group, err = t.node.Communicator(ctx, groupName, t.world); err != nil {
		return err
	}
	t.known = make(map[string]uint64)
	for _, m := range t.node.Members() {
		t.known[m.Node] = m.Incarnation
	}
	return t.agree(ctx)
}

// newcomers counts the living processes that are not in the group, and were not in the last whole
// one: gossip takes a while to notice a death.
func (t *trainer) newcomers() (n int) {
	for _, m := range t.node.Members() {
		if !slices.Contains(t.group.Nodes(), m.Node) && t.known[m.Node] != m.Incarnation {
			n++
		}
	}
	return n
}

// agree gives all members of a new group the model of one that has come farthest: some may have
// finished the step in which the old group broke, and who is new knows nothing.
func (t *trainer) agree(ctx context.Context) error {
	farthest := []int64{t.step}
	if err := polyrail.AllReduce(ctx, t.group, farthest, polyrail.Max); err != nil {
		return t.goOn(ctx)
	}
	source := []int32{-1}
	if t.step == farthest[0] {
		source[0] = int32(t.group.Rank())
	}
	if err := polyrail.AllReduce(ctx, t.group, source, polyrail.Max); err != nil {
		return t.goOn(ctx)
	}
	model := t.model
	if int(source[0]) != t.group.Rank() {
		clear(model[:]) // one operand and zeros: the sum is that operand
	}
	if err := polyrail.AllReduce(ctx, t.group, model[:], polyrail.Sum); err != nil {
		return t.goOn(ctx)
	}
	t.model, t.step = model, farthest[0]
	return nil
}

func (t *trainer) String() string { return fmt.Sprintf("model %.3f after %d steps", t.model, t.step) }
