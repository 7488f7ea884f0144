package faults

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

const example = `
# four nodes; one loses a rail, another one dies
nodes 4
rails 2
operations 20
sizes 8 64KiB 1MiB
pause 5ms
speed 20MiB
at 1s kill node3           # for good
at 200ms silence node1 rail0
at 900ms heal node1 rail*
at 950ms delay node0 rail1 3ms
at 950ms rate node0 rail1 100KiB
at 960ms part node0 node2
at 990ms unite
at 991ms corrupt node0 rail1
at 992ms panic node2 worker
expect lost node3
`

func TestParse(t *testing.T) {
	s, err := Parse(example)
	if err != nil {
		t.Fatal(err)
	}
	ms := time.Millisecond
	want := Scenario{Nodes: 4, Rails: 2, Operations: 20, Sizes: []int{8, 64 << 10, 1 << 20}, Pause: 5 * ms, Speed: 20 << 20, Lost: 3, Broken: -1, Steps: []Step{
		{At: 200 * ms, Do: Silence, Nodes: []int{1}},
		{At: 900 * ms, Do: Heal, Nodes: []int{1}, Rail: AllRails},
		{At: 950 * ms, Do: Delay, Nodes: []int{0}, Rail: 1, Duration: 3 * ms},
		{At: 950 * ms, Do: Rate, Nodes: []int{0}, Rail: 1, Bytes: 100 << 10},
		{At: 960 * ms, Do: Part, Nodes: []int{0, 2}},
		{At: 990 * ms, Do: Unite},
		{At: 991 * ms, Do: Corrupt, Nodes: []int{0}, Rail: 1},
		{At: 992 * ms, Do: Panic, Nodes: []int{2}, Actor: "worker"},
		{At: time.Second, Do: Kill, Nodes: []int{3}},
	}}
	if !reflect.DeepEqual(s, want) {
		t.Errorf("got %+v\nwant %+v", s, want)
	}
	again, err := Parse(s.String())
	if err != nil || !reflect.DeepEqual(again, s) {
		t.Errorf("%v: %+v", err, again)
	}
}

func TestErrorsNameTheirLines(t *testing.T) {
	_, err := Parse("nodes 4\nnode 3\nat soon cut node1 rail0\nat 1s cut node9 rail0\nat 1s break node1\n" +
		"at 1s cut node1\nrails many\nexpect luck\nat 1s rate node1 rail0 fast\nspeed 1 2\nat 1s part\nat 1s unite node1\nat\n" +
		"at 1s panic node1")
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"line 2: \"node\"", "line 3: \"soon\"", "line 4: node9", "line 5: \"break\"", "line 6: cut takes NODE RAIL",
		"line 7: rails \"many\"", "line 8: expect luck", "line 9: \"fast\"", "line 10: speed", "line 11: part", "line 12: unite", "line 13: at", "line 14: panic takes NODE ACTOR"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in\n%v", want, err)
		}
	}
	for text, want := range map[string]string{"nodes 1": "1 nodes", "rails 9": "9 rails", "sizes": "0 sizes", "sizes 7": "size 7", "operations 0": "0 operations", "at 1s panic node1 stations": `"stations" is no actor`, "expect lost node5": "node5", "expect broken node5": "node5", "expect lost node1\nexpect broken node2": "one thing"} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestFaultsOfAScenarioThatWasNotParsed(t *testing.T) {
	one := []int{1}
	for want, steps := range map[string][]Step{
		"at 0s action 99 node1: there is no such action": {{Do: 99, Nodes: one}},
		"kill of 0 nodes: want 1 to 1":                   {{Do: Kill}},
		"cut of 2 nodes: want 1 to 1":                    {{Do: Cut, Nodes: []int{0, 1}}},
		"part of 4 nodes: want 1 to 3":                   {{Do: Part, Nodes: []int{0, 1, 2, 1}}},
		"unite of 1 nodes: want 0 to 0":                  {{Do: Unite, Nodes: one}},
		"duration -1ns":                                  {{Do: Delay, Nodes: one, Duration: -1}},
		"silence node1 rail0: comes after a later step":  {{At: 2, Do: Heal, Nodes: one}, {At: 1, Do: Silence, Nodes: one}},
	} {
		s := Default()
		s.Steps = steps
		if err := s.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(example)
	f.Add(Random(1).String())
	f.Add("at 1s unplug node0 rail*\nat 1h reset node0 rail1\nat 3us stop node2")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(text)
		if err != nil {
			return
		}
		if err := s.Validate(); err != nil {
			t.Fatalf("parsed, and has faults: %v", err)
		}
		again, err := Parse(s.String())
		if err != nil || !reflect.DeepEqual(again, s) {
			t.Fatalf("%v: %+v became\n%+v", err, s, again)
		}
	})
}
