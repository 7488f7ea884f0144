package peer

import (
	"strings"
	"testing"
	"time"
)

// fixture is a core with a handful of rails that are up, in generation 1.
func fixture(t *testing.T, rails int) *Core[string] {
	t.Helper()
	c := New[string](Config{Rails: rails, InFlightBytes: 100, AckBytes: 50, CreditBytes: 30, AckDelay: time.Millisecond})
	for r := range rails {
		if !c.Connected(r, 1, new(Effects[string])) {
			t.Fatalf("rail %d refuses its first generation", r)
		}
	}
	return c
}

func data(name string, rail, bytes int) Item[string] {
	return Item[string]{Frame: name, Rail: rail, Bytes: bytes}
}

// take hands the next frame of a rail to a writer that is done with it at once.
func take(c *Core[string], rail int, generation uint64) string {
	it, _, _ := c.Take(rail, generation)
	c.Written(rail, generation, new(Effects[string]))
	return it.Frame
}

// story writes down what was released.
func story(fx *Effects[string]) string {
	var b strings.Builder
	for _, r := range fx.Released {
		b.WriteString(r.Frame + [...]string{" delivered", " revoked", " lost"}[r.Outcome] + "; ")
	}
	return strings.TrimSuffix(b.String(), "; ")
}

func TestControlGoesFirstAndDataAsFarAsTheLimit(t *testing.T) {
	c := fixture(t, 1)
	var fx Effects[string]
	for _, it := range []Item[string]{data("a", 0, 60), data("b", 0, 40), data("c", 0, 1), {Frame: "grant", Bytes: 1000, Ahead: true}} {
		c.Send(it, &fx)
	}
	if got := take(c, 0, 1) + take(c, 0, 1) + take(c, 0, 1) + take(c, 0, 1); got != "grantab" {
		t.Errorf("took %q before an acknowledgement", got)
	}
	fx.Reset()
	if err := c.Acked(0, 1, 2, &fx); err != nil || story(&fx) != "grant delivered; a delivered" || !fx.Wake.Has(0) {
		t.Errorf("%v, %s, wake %b", err, story(&fx), fx.Wake)
	}
	if got := take(c, 0, 1); got != "c" {
		t.Errorf("took %q after it", got)
	}
}

func TestAFrameThatIsLargerThanTheLimitGoesAlone(t *testing.T) {
	c := fixture(t, 1)
	var fx Effects[string]
	c.Send(data("large", 0, 500), &fx)
	c.Send(data("next", 0, 1), &fx)
	if got := take(c, 0, 1) + take(c, 0, 1); got != "large" {
		t.Errorf("took %q", got)
	}
}

func TestAFrameInAWritersHandsIsNotReleased(t *testing.T) {
	c := fixture(t, 1)
	var fx Effects[string]
	c.Send(data("a", 0, 1), &fx)
	c.Send(data("b", 0, 1), &fx)
	c.Take(0, 1)
	c.Take(0, 1)
	if err := c.Acked(0, 1, 1, &fx); err != nil || story(&fx) != "" {
		t.Errorf("acknowledged: %v, %s", err, story(&fx))
	}
	if held := c.Revoke(func(f string) bool { return f == "b" }, &fx); !held.Has(0) || story(&fx) != "" {
		t.Errorf("revoked: held by %b, %s", held, story(&fx))
	}
	c.Written(0, 1, &fx)
	if got := story(&fx); got != "b revoked; a delivered" {
		t.Errorf("written: %s", got)
	}
}

func TestImpossibleAcknowledgementsAndCreditsAreErrors(t *testing.T) {
	c := fixture(t, 1)
	var fx Effects[string]
	c.Send(data("a", 0, 1), &fx)
	take(c, 0, 1)
	if c.Acked(0, 1, 2, &fx) == nil {
		t.Error("two frames of one are acknowledged")
	}
	if err := c.Acked(0, 1, 1, &fx); err != nil {
		t.Error(err)
	}
	if c.Acked(0, 1, 0, &fx) == nil {
		t.Error("an acknowledgement is taken back")
	}
	if c.Credited(1, &fx) == nil {
		t.Error("credit comes back that nobody spent")
	}
	if c.PeerClosed(Statement{Rail: 1, Generation: 1}, &fx) == nil {
		t.Error("a statement about a rail that isn't there")
	}
	if c.PeerClosed(Statement{Rail: 0, Generation: 1, Received: 5}, &fx) == nil {
		t.Error("five frames of one are stated")
	}
}

func TestAcknowledgementsAreDueAtOnceOrSoon(t *testing.T) {
	c := fixture(t, 2)
	var fx Effects[string]
	for i, arm := range []Rails{1, 0} {
		fx.Reset()
		if c.Received(0, 1, 10, false, &fx); fx.Ack != 0 || fx.Arm != arm {
			t.Errorf("small frame %d: ack %b, arm %b", i, fx.Ack, fx.Arm)
		}
	}
	if ack, _ := c.Stamp(0); ack != 2 {
		t.Errorf("a header says %d", ack)
	}
	fx.Reset()
	if c.AckTimer(0, 1, &fx); fx.Ack != 0 {
		t.Error("the timer asks for an acknowledgement that rode on a header")
	}
	if c.Received(0, 1, 50, false, &fx); fx.Ack != 1 {
		t.Error("many bytes aren't acknowledged at once")
	}
	fx.Reset()
	if c.Received(1, 1, 1, true, &fx); fx.Ack != 2 {
		t.Error("a frame that asks for it isn't acknowledged at once")
	}
	fx.Reset()
	c.Stamp(0)
	c.ReturnCredit(10, &fx)
	if fx.Ack != 0 || fx.Arm != 1 {
		t.Errorf("a little credit: ack %b, arm %b", fx.Ack, fx.Arm)
	}
	if c.AckTimer(0, 1, &fx); fx.Ack != 1 {
		t.Error("a little credit is never told")
	}
	fx.Reset()
	if c.ReturnCredit(20, &fx); fx.Ack != 1 {
		t.Error("much credit isn't told at once")
	}
	if _, credit := c.Stamp(1); credit != 30 {
		t.Errorf("a header says %d bytes of credit", credit)
	}
}

func TestWhatARailLeavesBehindGoesToTheOthers(t *testing.T) {
	c := fixture(t, 2)
	var fx Effects[string]
	for _, name := range []string{"a", "b", "c", "d"} {
		c.Send(data(name, 0, 1), &fx)
	}
	for range 3 {
		take(c, 0, 1)
	}
	if err := c.Acked(0, 1, 1, &fx); err != nil || story(&fx) != "a delivered" {
		t.Errorf("%v, %s", err, story(&fx))
	}
	fx.Reset()
	c.Down(0, 1, &fx)
	if got := take(c, 1, 1); got != "d" {
		t.Errorf("took %q: what was never written waits for nobody", got)
	}
	if c.Quiesced(0, 1, &fx); len(fx.Statements) != 1 || fx.Statements[0] != (Statement{Rail: 0, Generation: 1}) {
		t.Errorf("statements %+v", fx.Statements)
	}
	if got := take(c, 1, 1); got != "" {
		t.Errorf("took %q before the other side stated", got)
	}
	if err := c.PeerClosed(Statement{Rail: 0, Generation: 1, Received: 2}, &fx); err != nil || story(&fx) != "b delivered" {
		t.Errorf("%v, %s", err, story(&fx))
	}
	it, _, _ := c.Take(1, 1)
	if it.Frame != "c" || !it.Resent {
		t.Errorf("took %+v", it)
	}
	if c.Connected(0, 1, &fx) {
		t.Error("a generation came back")
	}
	if !c.Connected(0, c.Propose(0, 0), &fx) {
		t.Error("the rail may not come back")
	}
}

func TestLostFramesGoAgainInTheirOrderBeforeNewerOnes(t *testing.T) {
	c := fixture(t, 2)
	var fx Effects[string]
	control := func(name string) Item[string] {
		return Item[string]{Frame: name, Bytes: 9, Ahead: true}
	}
	for _, it := range []Item[string]{control("v"), control("w"), data("a", 0, 10), data("b", 0, 20),
		data("c", 0, 30)} {
		c.Send(it, &fx)
		take(c, 0, 1)
	}
	c.Revoke(func(f string) bool { return f == "b" }, &fx)
	c.Send(data("d", 0, 40), &fx)
	c.Send(control("x"), &fx)
	c.Down(0, 1, &fx)
	c.Quiesced(0, 1, &fx)
	if err := c.PeerClosed(Statement{Rail: 0, Generation: 1}, &fx); err != nil {
		t.Fatal(err)
	}
	got := ""
	for range 7 {
		got += take(c, 1, 1)
	}
	if got != "vwxacd" {
		t.Errorf("took %q", got)
	}
	if m := fx.Moves[0]; m.Resent != 40 || m.Held != 0 || m.To[1] != 80 {
		t.Errorf("%+v", m)
	}
}

func TestAStatementAboutAConnectionThatNeverCameToBeIsAnswered(t *testing.T) {
	c := fixture(t, 1)
	var fx Effects[string]
	c.Down(0, 1, &fx)
	c.Quiesced(0, 1, &fx)
	fx.Reset()
	if err := c.PeerClosed(Statement{Rail: 0, Generation: 2, Received: 0}, &fx); err != nil {
		t.Fatal(err)
	}
	if len(fx.Statements) != 1 || fx.Statements[0] != (Statement{Rail: 0, Generation: 2, Answer: true}) {
		t.Errorf("statements %+v", fx.Statements)
	}
	if c.Connected(0, 2, &fx) {
		t.Error("it came to be after all")
	}
	fx.Reset()
	if err := c.PeerClosed(Statement{Rail: 0, Generation: 3, Answer: true}, &fx); err != nil || len(fx.Statements) != 0 {
		t.Errorf("an answer was answered: %v, %+v", err, fx.Statements)
	}
	if err := c.PeerClosed(Statement{Rail: 0, Generation: 2}, &fx); err != nil {
		t.Fatal(err)
	}
	if c.Connected(0, 3, &fx) {
		t.Error("generation 3 came to be, since 2 was stated again")
	}
}

// Two rails break while each carries the statement about the other: neither side may
// wait for the other's.
func TestStatementsThatCrossDontWaitForEachOther(t *testing.T) {
	c := fixture(t, 2)
	var fx Effects[string]
	statement := Item[string]{Frame: "statement", Rail: 1, Bytes: 1, Ahead: true, Restated: true}
	c.Send(statement, &fx)
	take(c, 1, 1)
	c.Connected(0, 2, &fx)
	fx.Reset()
	c.Down(1, 1, &fx)
	if got := take(c, 0, 1); got != "statement" {
		t.Errorf("took %q: it waits for the settlement of the rail that carried it", got)
	}
	c.Quiesced(1, 1, &fx)
	if err := c.PeerClosed(Statement{Rail: 1, Generation: 1}, &fx); err != nil {
		t.Fatal(err)
	}
	if got := take(c, 0, 1); got != "" || len(fx.Moves) != 0 {
		t.Errorf("took %q after the settlement, %+v: it has gone again already", got, fx.Moves)
	}
}

// A statement may come twice: before this side has quiesced, and after all is settled.
func TestAStatementThatComesAgainChangesNothing(t *testing.T) {
	c := fixture(t, 2)
	var fx Effects[string]
	for _, name := range []string{"a", "b", "c"} {
		c.Send(data(name, 0, 1), &fx)
		take(c, 0, 1)
	}
	if err := c.Acked(0, 1, 1, &fx); err != nil {
		t.Fatal(err)
	}
	c.Down(0, 1, &fx)
	fx.Reset()
	state := func(received uint64) error {
		return c.PeerClosed(Statement{Rail: 0, Generation: 1, Received: received}, &fx)
	}
	for _, received := range []uint64{0, 4} {
		if state(received) == nil {
			t.Errorf("%d frames of 3, one of them acknowledged, are said to have arrived", received)
		}
	}
	for range 2 {
		if err := state(2); err != nil || !fx.None() {
			t.Fatalf("before the end: %v, %+v", err, fx)
		}
	}
	if state(3) == nil {
		t.Error("it stated 2 frames, and then 3")
	}
	c.Quiesced(0, 1, &fx)
	if got := story(&fx); got != "b delivered" || c.NextBytes(1, 1) != 1 {
		t.Errorf("%s; c is not sent again", got)
	}
	fx.Reset()
	for _, up := range []bool{false, true} {
		if err := state(2); err != nil || !fx.None() {
			t.Errorf("after the end, next generation %v: %v, %+v", up, err, fx)
		}
		c.Connected(0, 2, new(Effects[string]))
	}
}

func TestAFarewellSettlesWithoutAStatement(t *testing.T) {
	c := fixture(t, 1)
	var fx Effects[string]
	c.Send(data("a", 0, 1), &fx)
	take(c, 0, 1)
	c.Farewell(0, 1, &fx)
	c.Quiesced(0, 1, &fx)
	if c.Idle() || len(fx.Statements)+len(fx.Moves) != 0 || story(&fx) != "" {
		t.Errorf("idle %v, %+v, %+v, %s", c.Idle(), fx.Statements, fx.Moves, story(&fx))
	}
	if c.Lose(&fx); story(&fx) != "a lost" || !c.Idle() {
		t.Errorf("%s, idle %v", story(&fx), c.Idle())
	}
}

// TestAMoveTellsWhatWentWhere: of three frames on the rail that dies one is acknowledged, one
// received, one lost; a fourth had to wait.
func TestAMoveTellsWhatWentWhere(t *testing.T) {
	c := fixture(t, 3)
	var fx Effects[string]
	for _, it := range []Item[string]{data("a", 0, 30), data("b", 0, 20), data("c", 0, 50), data("d", 0, 60), {Frame: "grant", Bytes: 9, Ahead: true}} {
		c.Send(it, &fx)
	}
	for range 4 {
		take(c, 0, 1)
	}
	if err := c.Acked(0, 1, 2, &fx); err != nil { // the grant and a
		t.Fatal(err)
	}
	c.Send(data("elsewhere", 1, 1), &fx) // so that rail 2 is the least loaded
	c.Down(0, 1, &fx)
	cut := Cut{Generation: 1, Unacknowledged: 70, Waiting: 60}
	if got := c.LastCut(0); got != cut {
		t.Errorf("%+v, want %+v", got, cut)
	}
	c.Quiesced(0, 1, &fx)
	if err := c.PeerClosed(Statement{Rail: 0, Generation: 1, Received: 3}, &fx); err != nil {
		t.Fatal(err)
	}
	if len(fx.Moves) != 1 || fx.Moves[0].Cut != cut || fx.Moves[0].Resent != 50 || fx.Moves[0].Held != 0 ||
		fx.Moves[0].To[0] != 0 || fx.Moves[0].To[1]+fx.Moves[0].To[2] != 110 || fx.Moves[0].To[2] < 60 {
		t.Errorf("%+v", fx.Moves)
	}
}

// A rail that flaps for ever must not be remembered for ever.
func TestGenerationsThatWereInUseAreForgotten(t *testing.T) {
	c := New[int](Config{Rails: 1})
	var fx Effects[int]
	for g := range uint64(3 * maxUsed) {
		if !c.Connected(0, g+1, &fx) {
			t.Fatalf("generation %d was not taken", g+1)
		}
		c.Down(0, g+1, &fx)
		c.Quiesced(0, g+1, &fx)
		if err := c.PeerClosed(Statement{Generation: g + 1}, &fx); err != nil {
			t.Fatal(err)
		}
		fx.Reset()
	}
	if used := len(c.links[0].used); used != maxUsed || c.Unsettled() != 0 {
		t.Errorf("%d are remembered, %d are unsettled", used, c.Unsettled())
	}
}
