package schedule

import (
	"slices"

	"github.com/polyrail/polyrail/collective/op"
)

// builder writes a program owner by owner.
type builder struct {
	p     *Program
	code  []Instr // of the owner that is being written
	slots int     // handed out so far, over all owners
}

// owner ends the program of the previous owner and begins that of the next one.
func (b *builder) owner() {
	if b.code != nil {
		b.p.ByOwner = append(b.p.ByOwner, b.code)
	}
	b.code = make([]Instr, 0, 4)
}

func (b *builder) add(in Instr) Value {
	b.code = append(b.code, in)
	return Value(len(b.code) - 1)
}

// recv receives an operand into a scratch slot of its own: its sender may be any number
// of steps ahead of us, so that no other value's slot is sure to be free.
func (b *builder) recv(step int, from op.Rank) Value {
	b.slots++
	return b.add(Instr{Kind: Recv, Step: step, Peer: from, Store: Place{Kind: Scratch, Slot: b.slots - 1}})
}

// recvFinal receives the final value.
func (b *builder) recvFinal(step int, from op.Rank) Value {
	return b.add(Instr{Kind: Recv, Step: step, Peer: from, Store: Place{Kind: Final}})
}

func (b *builder) send(step int, to op.Rank, v Value) {
	b.add(Instr{Kind: Send, Step: step, Peer: to, Args: []Value{v}})
}

// reduce folds args over the value in scratch that is called over: the first or second of them.
func (b *builder) reduce(over Value, args ...Value) Value {
	return b.add(Instr{Kind: Reduce, Args: args, Store: b.code[over].Store})
}

// reduceFinal folds args into Final. An Input beyond the second argument might be
// overwritten (it may be the same memory) before it is read, so what stands before it is
// folded first; the order stays the same.
func (b *builder) reduceFinal(args ...Value) Value {
	if i := slices.Index(args, Input); i >= 2 {
		head := b.reduce(args[0], args[:i]...)
		args = append([]Value{head}, args[i:]...)
	}
	var hazards []Value
	for v, in := range b.code {
		if in.Kind == Send && in.Args[0] == Input {
			hazards = append(hazards, Value(v))
		}
	}
	return b.add(Instr{Kind: Reduce, Last: true, Args: args, Store: Place{Kind: Final}, Hazards: hazards})
}

// finish derives what the program's readers look up.
func (b *builder) finish() *Program {
	b.owner()
	p := b.p
	p.Slots = b.slots
	total := 0
	for _, code := range p.ByOwner {
		total += len(code)
	}
	p.Code = make([]Instr, 0, total)
	p.Base = make([]int, 0, p.Owners+1)
	p.recvs = make([][]Value, p.Owners)
	for o, code := range p.ByOwner {
		p.Base = append(p.Base, len(p.Code))
		p.Code = append(p.Code, code...)
		p.ByOwner[o] = p.Code[p.Base[o]:]
		b.derive(o)
	}
	p.Base = append(p.Base, len(p.Code))
	slices.Sort(p.From)
	p.From = slices.Compact(p.From)
	slices.Sort(p.To)
	p.To = slices.Compact(p.To)
	for i := range p.Code {
		switch in := &p.Code[i]; in.Kind {
		case Recv:
			in.Link, _ = slices.BinarySearch(p.From, in.Peer)
		case Send:
			in.Link, _ = slices.BinarySearch(p.To, in.Peer)
		}
	}
	slices.SortStableFunc(p.Ready, func(x, y int) int { return p.Code[x].Step - p.Code[y].Step })
	return p
}

// derive fills in what follows from the instructions of one owner.
func (b *builder) derive(owner int) {
	p, code := b.p, b.p.ByOwner[owner]
	for v := range code {
		in := &code[v]
		in.Owner = owner
		ready := in.Kind != Recv
		for i, a := range in.Args {
			if a == Input {
				in.User = true
				continue
			}
			ready = false
			in.User = in.User || code[a].Store.Kind == Final
			in.Scratch = in.Scratch || code[a].Store.Kind == Scratch
			if !slices.Contains(in.Args[:i], a) {
				code[a].Uses = append(code[a].Uses, Value(v))
			}
		}
		for _, h := range in.Hazards {
			code[h].Uses = append(code[h].Uses, Value(v))
		}
		in.User = in.User || in.Store.Kind == Final
		in.Scratch = in.Scratch || in.Store.Kind == Scratch
		switch in.Kind {
		case Recv:
			p.From = append(p.From, in.Peer)
			p.recvs[owner] = append(p.recvs[owner], Value(v))
		case Send:
			p.To = append(p.To, in.Peer)
		}
		if ready {
			p.Ready = append(p.Ready, p.Base[owner]+v)
		}
	}
	slices.SortFunc(p.recvs[owner], func(x, y Value) int { return code[x].Step - code[y].Step })
}
