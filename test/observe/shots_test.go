package observe

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/test/testbed"
)

var shots = flag.String("shots", "", "directory for pictures of the page in all its states")

// looks are how people see the page.
var looks = []struct {
	name          string
	width, height int64
	scheme        string
}{
	{"wide-light", 1440, 900, "light"}, {"wide-dark", 1440, 900, "dark"},
	{"narrow-light", 390, 844, "light"}, {"narrow-dark", 390, 844, "dark"},
}

// shown is how many seconds of a scene a picture has.
const shown = 10

// takePictures takes one of each look, all at the same time, in tabs of one browser.
func takePictures(t *testing.T, tab context.Context, addr, scene string) {
	t.Helper()
	err := testbed.Each(len(looks), func(i int) error {
		look := looks[i]
		ctx, cancel := chromedp.NewContext(tab)
		defer cancel()
		ready := fmt.Sprintf(`() => rails.size > 0 && [...rails.values()][0].samples.length >= %d`, shown)
		var picture []byte
		var over string
		err := chromedp.Run(ctx, chromedp.EmulateViewport(look.width, look.height), emulation.SetFocusEmulationEnabled(true),
			emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: look.scheme}}),
			chromedp.Navigate("http://"+addr), chromedp.PollFunction(ready, nil, chromedp.WithPollingTimeout(time.Minute)),
			chromedp.Evaluate(overflowing, &over), chromedp.FullScreenshot(&picture, 100))
		if err == nil && over != "" {
			err = fmt.Errorf("wider than the window: %s", over)
		}
		if err != nil {
			err = fmt.Errorf("%s %s: %w", scene, look.name, err)
		}
		if len(picture) == 0 {
			return err
		}
		return errors.Join(err, os.WriteFile(filepath.Join(*shots, scene+"-"+look.name+".png"), picture, 0o644))
	})
	if err != nil {
		t.Error(err)
	}
}

// overflowing names elements that make the page wider than its window.
const overflowing = `[...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > innerWidth + 1 &&
  !e.closest(".scroll")).slice(0, 3).map((e) => e.tagName + "." + e.className).join()`

func inBrowser(t *testing.T) context.Context {
	t.Helper()
	if *shots == "" {
		t.Skip("SKIPPED: -shots DIRECTORY takes pictures of the page")
	}
	ctx := browser(t)
	if err := chromedp.Run(ctx); err != nil { // it starts: tabs have one browser then
		t.Fatal(err)
	}
	return ctx
}

// TestShotsOfAStage takes pictures of a cluster that doesn't exist.
func TestShotsOfAStage(t *testing.T) {
	for _, nodes := range []int{2, 64} {
		for _, scene := range []string{"rest", "load", "cut", "loss", "tree"} {
			name := fmt.Sprintf("stage-%d-%s", nodes, scene)
			t.Run(name, func(t *testing.T) {
				ctx := inBrowser(t)
				s := newStage(nodes, scene)
				s.began = s.began.Add(-9 * time.Second) // a cut begins in a second
				takePictures(t, ctx, raise(t, "127.0.0.1:0", s).Addr(), name)
			})
		}
	}
}

// TestShotsOfNodes takes pictures of nodes in this process, two rails each, and of one more that
// aggregates: at rest, under load, during a cut, and after the loss of a rank.
func TestShotsOfNodes(t *testing.T) {
	for _, nodes := range []int{2, 64} {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			ctx := inBrowser(t)
			aggregator := testbed.NodeName(nodes)
			c := watched(t, nodes+1, 2, func(cfg *polyrail.Config) {
				cfg.Rails[0].Protocol = "sharp"
				if cfg.Name == aggregator {
					cfg.Aggregate = []string{cfg.Rails[0].Name}
				}
				if cfg.Name != testbed.NodeName(0) {
					cfg.HTTP = polyrail.HTTP{} // one page shows all
				}
			})
			comms := make([]*polyrail.Communicator, nodes)
			if err := testbed.Each(nodes, func(i int) (err error) {
				comms[i], err = c.Nodes[i].Communicator(t.Context(), "train", nodes)
				return err
			}); err != nil {
				t.Fatal(err)
			}
			take := func(scene string) {
				takePictures(t, ctx, c.Nodes[0].HTTPAddr(), fmt.Sprintf("nodes-%d-%s", nodes, scene))
			}
			take("rest")
			finish := load(comms)
			take("load")
			c.Rails.Cut(testbed.NodeName(1), testbed.Device(1))
			take("cut")
			c.Rails.Heal(testbed.NodeName(1), testbed.Device(1))
			if err := finish(); err != nil {
				t.Error(err)
			}
			c.Kill(nodes - 1)
			if err := comms[0].Barrier(t.Context()); err == nil {
				t.Error("a barrier without a member")
			}
			take("loss")
		})
	}
}

// load runs allreduces of several sizes on all ranks, until finish is called.
func load(comms []*polyrail.Communicator) (finish func() error) {
	stop, over := make(chan struct{}), make(chan error, 1)
	go func() {
		over <- testbed.Each(len(comms), func(i int) error {
			for {
				for _, elements := range []int{1, 1, 1, 1 << 14, 1 << 18} {
					buf := make([]float32, elements)
					select {
					case <-stop:
						buf[0] = 1 // all ranks learn it from the same sum
					default:
					}
					if err := polyrail.AllReduce(context.Background(), comms[i], buf, polyrail.Sum); err != nil || buf[0] > 0 {
						return err
					}
				}
			}
		})
	}()
	return func() error {
		close(stop)
		return <-over
	}
}
