package settings

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// MaxFileBytes bounds a file that a command reads.
const MaxFileBytes = 1 << 20

// ReadFile reads a file of a bounded length. Where that takes for ever, as of a pipe that nobody
// writes to, the end of ctx is its end; what reads goes on until somebody does.
func ReadFile(ctx context.Context, name string) ([]byte, error) {
	var text []byte
	var err error
	read := make(chan struct{})
	go func() {
		defer close(read)
		text, err = readAll(name)
	}()
	select {
	case <-read:
		return text, err
	case <-ctx.Done():
		return nil, fmt.Errorf("no text of %s yet: %w", name, context.Cause(ctx))
	}
}

func readAll(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, MaxFileBytes+1))
	if err == nil && len(text) > MaxFileBytes {
		err = fmt.Errorf("%s: longer than %s", name, FormatSize(MaxFileBytes))
	}
	return text, err
}

// config is a configuration file.
type config struct {
	name string
	keys map[string]yaml.Node // values as they are written: 007 is a name, and 0x10 no size
}

// openConfig reads the file that --config names, if any.
func openConfig(ctx context.Context, flags *pflag.FlagSet, known func(key string) bool) (*config, error) {
	c := &config{}
	f := flags.Lookup(ConfigFlag)
	if f == nil {
		return c, nil
	}
	c.name = f.Value.String()
	if env := os.Getenv(EnvName(ConfigFlag)); !f.Changed && env != "" {
		c.name = env
	}
	if c.name == "" {
		return c, nil
	}
	text, err := ReadFile(ctx, c.name)
	if err == nil {
		err = c.decode(string(text))
	}
	if err != nil {
		return nil, fmt.Errorf("config file %s: %w", c.name, err)
	}
	var unknown []string
	for key := range c.keys {
		if !hasKey(key) || !known(key) {
			unknown = append(unknown, fmt.Sprintf("%q", key))
		}
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		return nil, fmt.Errorf("config file %s: unknown key %s (a key is the name of a flag)", c.name, strings.Join(unknown, ", "))
	}
	return c, nil
}

func (c *config) decode(text string) error {
	d := yaml.NewDecoder(strings.NewReader(text))
	if err := d.Decode(&c.keys); errors.Is(err, io.EOF) { // it is empty
		return nil
	} else if err != nil {
		return err
	}
	var next yaml.Node
	if err := d.Decode(&next); err == nil {
		return errors.New("a second document begins")
	} else if !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// values are what a key says: one or, as a list, several; none where it is missing or null.
func (c *config) values(key string) ([]string, error) {
	node, found := c.keys[key]
	if !found {
		return nil, nil
	}
	n := resolve(&node)
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return nil, nil
	}
	nodes := []*yaml.Node{n}
	if n.Kind == yaml.SequenceNode {
		nodes = n.Content
	}
	var values []string
	for _, n := range nodes {
		if n = resolve(n); n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
			return nil, errors.New("a value or a list of values is wanted")
		}
		values = append(values, n.Value)
	}
	return values, nil
}

// resolve follows an alias.
func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}
