package tuning

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/polyrail/polyrail/collective/balance"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/table"
)

// Version is that of the file's form. A file of another one is not read, and not overwritten.
const Version = 1

// Limits of a file.
const (
	MaxBytes   = 1 << 20
	MaxTunings = 64 // sets of rails and numbers of ranks; the oldest are dropped
	maxRanks   = 1 << 20
	maxName    = 128
)

const heading = `polyrail tuning file: what the rails were measured to do. It is rewritten when a communicator closes; delete it,
or a part, to begin anew. Classes: how operations up to a size were divided, and the rails' model then (startup + rate).
Samples: what a rail took for some bytes; weight in windows of ten operations.`

// Key says whose a tuning is: so many ranks on these rails.
type Key struct {
	Ranks int
	Rails []Rail // by name, as the rails are numbered
}

// Rail is a rail's part of a Key.
type Rail struct {
	Name     string `yaml:"name"`
	Protocol string `yaml:"protocol"`
}

func (k Key) String() string {
	rails := make([]string, len(k.Rails))
	for i, r := range k.Rails {
		rails[i] = fmt.Sprintf("%s=%s", r.Name, r.Protocol)
	}
	return fmt.Sprintf("%d ranks on %s", k.Ranks, strings.Join(rails, " "))
}

func (k Key) validate() error {
	if k.Ranks < 1 || k.Ranks > maxRanks {
		return fmt.Errorf("%d ranks", k.Ranks)
	}
	if len(k.Rails) < 1 || len(k.Rails) > table.MaxRails {
		return fmt.Errorf("%d rails", len(k.Rails))
	}
	seen := make(map[string]bool)
	for _, r := range k.Rails {
		if r.Name == "" || len(r.Name) > maxName || len(r.Protocol) > maxName || seen[r.Name] {
			return fmt.Errorf("rail %q", r.Name)
		}
		seen[r.Name] = true
	}
	return nil
}

// Tuning is one entry of a file.
type Tuning struct {
	Key   Key
	At    time.Time // when it was written
	Saved balance.Saved
}

// document, entry, class and sample are the file as YAML has it.
type document struct {
	Version int     `yaml:"version"`
	Tunings []entry `yaml:"tunings"`
}

type entry struct {
	Ranks   int       `yaml:"ranks"`
	Rails   []rail    `yaml:"rails"`
	Saved   time.Time `yaml:"saved"`
	Classes []class   `yaml:"classes"`
	Samples []sample  `yaml:"samples"`
}

type class struct {
	UpTo      int64             `yaml:"up-to"`
	Algorithm string            `yaml:"algorithm"`
	Shares    map[string]uint32 `yaml:"shares,flow"`
	Bytes     int64             `yaml:"bytes"`
	Windows   int               `yaml:"windows"`
	Settled   bool              `yaml:"settled"`
}

type sample struct {
	Rail      string        `yaml:"rail"`
	Algorithm string        `yaml:"algorithm"`
	UpTo      int64         `yaml:"up-to"`
	Alone     bool          `yaml:"alone,omitempty"`
	Bytes     int64         `yaml:"bytes"`
	Time      time.Duration `yaml:"time"`
	Weight    float64       `yaml:"weight"`
}

// rail is a Rail on one line.
type rail Rail

// Encode writes tunings as a file, without the oldest where they are too many. It is an error if
// the newest alone is too much.
func Encode(tunings []Tuning) ([]byte, error) {
	tunings = tunings[max(0, len(tunings)-MaxTunings):]
	for ; ; tunings = tunings[1:] {
		d := document{Version: Version, Tunings: make([]entry, 0, len(tunings))}
		for i := range tunings {
			d.Tunings = append(d.Tunings, entryOf(&tunings[i]))
		}
		text, err := marshal(&d, tunings)
		if err != nil || len(text) <= MaxBytes {
			return text, err
		}
		if len(tunings) == 1 {
			return nil, fmt.Errorf("%v: %d bytes, the limit is %d", tunings[0].Key, len(text), MaxBytes)
		}
	}
}

func entryOf(t *Tuning) entry {
	e := entry{Ranks: t.Key.Ranks, Saved: t.At.UTC().Truncate(time.Second)}
	for _, r := range t.Key.Rails {
		e.Rails = append(e.Rails, rail(r))
	}
	for i := range t.Saved.Classes {
		c := &t.Saved.Classes[i]
		line := class{UpTo: c.Class.MaxBytes(), Algorithm: c.Algorithm.String(), Shares: make(map[string]uint32),
			Bytes: c.Bytes, Windows: c.Windows, Settled: c.Settled}
		for rail, share := range c.Shares {
			line.Shares[t.Key.Rails[rail].Name] = share
		}
		e.Classes = append(e.Classes, line)
	}
	for _, s := range t.Saved.Samples {
		e.Samples = append(e.Samples, sample{Rail: t.Key.Rails[s.Rail].Name, Algorithm: s.Algorithm.String(), UpTo: s.Class.MaxBytes(),
			Alone: s.Alone, Bytes: s.Bytes, Time: s.Elapsed, Weight: math.Round(s.Weight*1000) / 1000})
	}
	return e
}

// marshal writes one class or sample a line, and the models as comments.
func marshal(d *document, tunings []Tuning) ([]byte, error) {
	var root yaml.Node
	if err := root.Encode(d); err != nil {
		return nil, err
	}
	root.HeadComment = heading
	list := field(&root, "tunings")
	for i, e := range list.Content {
		for _, name := range []string{"rails", "classes", "samples"} {
			for _, line := range field(e, name).Content {
				line.Style = yaml.FlowStyle
			}
		}
		for k, line := range field(e, "classes").Content {
			line.LineComment = modelComment(tunings[i].Key.Rails, tunings[i].Saved.Classes[k].Model)
		}
	}
	var out bytes.Buffer
	w := yaml.NewEncoder(&out)
	w.SetIndent(2)
	if err := errors.Join(w.Encode(&root), w.Close()); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// field is the value of a mapping's key.
func field(mapping *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return mapping.Content[i+1]
		}
	}
	return &yaml.Node{}
}

func modelComment(rails []Rail, models []balance.RailReport) string {
	var parts []string
	for i, m := range models {
		if m.Known {
			parts = append(parts, fmt.Sprintf("%s %v + %.4g MB/s", rails[i].Name, max(m.Startup, 0).Round(time.Microsecond), m.Rate/1e6))
		}
	}
	return strings.Join(parts, ", ")
}

// Decode reads a file. An error says what is wrong with it.
func Decode(text []byte) ([]Tuning, error) {
	if len(text) > MaxBytes {
		return nil, fmt.Errorf("%d bytes, the limit is %d", len(text), MaxBytes)
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, nil // made beforehand, to be filled
	}
	var version struct{ Version int }
	if err := yaml.Unmarshal(text, &version); err != nil {
		return nil, oneLine(err)
	}
	if version.Version != Version {
		return nil, fmt.Errorf("version %d, this is version %d", version.Version, Version)
	}
	var d document
	r := yaml.NewDecoder(bytes.NewReader(text))
	r.KnownFields(true)
	if err := r.Decode(&d); err != nil {
		return nil, oneLine(err)
	}
	if err := r.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one document")
	}
	if len(d.Tunings) > MaxTunings {
		return nil, fmt.Errorf("%d tunings, the limit is %d", len(d.Tunings), MaxTunings)
	}
	tunings := make([]Tuning, 0, len(d.Tunings))
	for i := range d.Tunings {
		t, err := d.Tunings[i].tuning()
		if err != nil {
			return nil, fmt.Errorf("tuning %d: %w", i+1, err)
		}
		tunings = append(tunings, t)
	}
	return tunings, nil
}

// oneLine is for errors of the YAML package: the first fault, without the names of Go's types.
func oneLine(err error) error {
	text := err.Error()
	var faults *yaml.TypeError
	if errors.As(err, &faults) && len(faults.Errors) > 0 {
		text = faults.Errors[0]
	}
	text, _, _ = strings.Cut(text, " into ")
	text, _, _ = strings.Cut(text, " in type ")
	return errors.New("not what a tuning file says: " + strings.Join(strings.Fields(text), " "))
}

func (e *entry) tuning() (t Tuning, err error) {
	t = Tuning{Key: Key{Ranks: e.Ranks}, At: e.Saved}
	for _, r := range e.Rails {
		t.Key.Rails = append(t.Key.Rails, Rail(r))
	}
	slices.SortFunc(t.Key.Rails, func(a, b Rail) int { return strings.Compare(a.Name, b.Name) })
	if err := t.Key.validate(); err != nil {
		return t, err
	}
	numbers := make(map[string]int, len(t.Key.Rails))
	for i, r := range t.Key.Rails {
		numbers[r.Name] = i
	}
	for i := range e.Classes {
		c, err := e.Classes[i].class(numbers)
		if err != nil {
			return t, fmt.Errorf("class up to %d: %w", e.Classes[i].UpTo, err)
		}
		t.Saved.Classes = append(t.Saved.Classes, c)
	}
	for i := range e.Samples {
		s, err := e.Samples[i].sample(numbers)
		if err != nil {
			return t, fmt.Errorf("sample %d: %w", i+1, err)
		}
		t.Saved.Samples = append(t.Saved.Samples, s)
	}
	return t, t.Saved.Validate(len(t.Key.Rails))
}

func (c *class) class(numbers map[string]int) (s balance.SavedClass, err error) {
	s = balance.SavedClass{Bytes: c.Bytes, Windows: c.Windows, Settled: c.Settled, Shares: make([]uint32, len(numbers))}
	if s.Class, err = classOf(c.UpTo); err != nil {
		return s, err
	}
	if s.Algorithm, err = op.ParseAlgorithm(c.Algorithm); err != nil {
		return s, err
	}
	for name, share := range c.Shares {
		number, ok := numbers[name]
		if !ok {
			return s, fmt.Errorf("a share of rail %q, which is not among the rails", name)
		}
		s.Shares[number] = share
	}
	return s, nil
}

func (x *sample) sample(numbers map[string]int) (s balance.Sample, err error) {
	number, ok := numbers[x.Rail]
	if !ok {
		return s, fmt.Errorf("rail %q is not among the rails", x.Rail)
	}
	s = balance.Sample{Rail: number, Alone: x.Alone, Bytes: x.Bytes, Elapsed: x.Time, Weight: x.Weight}
	if s.Class, err = classOf(x.UpTo); err != nil {
		return s, err
	}
	s.Algorithm, err = op.ParseAlgorithm(x.Algorithm)
	return s, err
}

func classOf(upTo int64) (balance.Class, error) {
	if upTo < 1 {
		return 0, fmt.Errorf("size %d", upTo)
	}
	c := balance.ClassOf(upTo)
	if c.MaxBytes() != upTo {
		return 0, fmt.Errorf("size %d is no power of two", upTo)
	}
	return c, nil
}
