package observe

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/test/testbed"
)

// browser starts a headless Chromium, or skips the test where there is none.
func browser(t *testing.T) context.Context {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "headless-shell"} {
		if p, err := exec.LookPath(name); err == nil {
			path = p
			break
		}
	}
	if path == "" {
		t.Skip("SKIPPED: no Chromium here")
	}
	if testing.Short() {
		t.Skip("SKIPPED: a browser takes long under the race detector")
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox,
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.WSURLReadTimeout(time.Minute))
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), opts...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// complaints collects what the page's scripts and the browser's policy object to.
const complaints = `window.complaints = [];
addEventListener("error", (e) => complaints.push(e.message));
addEventListener("securitypolicyviolation", (e) => complaints.push("blocked: " + e.blockedURI));`

func TestThePageShowsACutAndItsRepairWithinASecond(t *testing.T) {
	ctx := browser(t)
	c := watched(t, 2, 2, func(cfg *polyrail.Config) { cfg.HTTP.Token = token })
	comms, err := c.Form(t.Context(), "train")
	if err != nil {
		t.Fatal(err)
	}
	reduce(t, c, comms, 5, 1<<20)
	rail := testbed.RailName(0)
	state := func(up bool) string { return fmt.Sprintf(`.rail[data-rail=%q][data-up=%q]`, rail, fmt.Sprint(up)) }
	run := func(what string, actions ...chromedp.Action) time.Duration {
		t.Helper()
		start := time.Now()
		if err := chromedp.Run(ctx, actions...); err != nil {
			var body string
			_ = chromedp.Run(ctx, chromedp.Text("body", &body, chromedp.ByQuery))
			t.Fatalf("%s: %v\n%s", what, err, body)
		}
		return time.Since(start)
	}
	run("opening the page", chromedp.Navigate("http://"+c.Nodes[0].HTTPAddr()+"/?token="+token),
		chromedp.Evaluate(complaints, nil),
		chromedp.WaitVisible(fmt.Sprintf(`.rail[data-rail=%q]`, rail), chromedp.ByQuery),
		chromedp.WaitReady(state(true), chromedp.ByQuery), chromedp.WaitVisible(`[data-node="node1"] .lane`, chromedp.ByQuery))

	c.Rails.Cut(testbed.NodeName(1), testbed.Device(0))
	t.Logf("the cut was on the page after %v", run("a cut", chromedp.WaitReady(state(false), chromedp.ByQuery),
		chromedp.WaitReady(`#verdict[data-state="bad"]`, chromedp.ByQuery), chromedp.WaitReady(`#events [data-kind="rail down"]`, chromedp.ByQuery)))
	c.Rails.Heal(testbed.NodeName(1), testbed.Device(0))
	events := c.Nodes[0].Events(t.Context())
	for e := range events { // the node needs up to 2 s to connect again
		if e.Kind == polyrail.RailUp {
			break
		}
	}
	t.Logf("its repair was on the page after %v", run("its repair", chromedp.WaitReady(state(true), chromedp.ByQuery),
		chromedp.WaitReady(`#verdict[data-state="good"]`, chromedp.ByQuery)))

	var said []string
	var outside, address string
	run("what the page objected to", chromedp.Evaluate(`complaints`, &said), chromedp.Location(&address),
		chromedp.Evaluate(`performance.getEntriesByType("resource").map((r) => r.name).filter((n) => !n.startsWith(location.origin)).join()`, &outside))
	var kept []float64 // a node's rate while it has not answered again
	run("rates", chromedp.Evaluate(`[[100, 1], [300, 2], [300, 2.0004], [400, 3]].map(([bytes, at]) => perSecond("of a test", bytes, at))`, &kept))
	if !slices.Equal(kept, []float64{0, 200, 200, 100}) {
		t.Errorf("rates %v", kept)
	}
	if len(said) > 0 || outside != "" || strings.Contains(address, token) {
		t.Errorf("complaints %q, from other hosts %q, address %s", said, outside, address)
	}
}

// A browser has six connections to an address.
func TestManyPagesOfOneBrowserAreLive(t *testing.T) {
	ctx := browser(t)
	c := watched(t, 1, 1, func(cfg *polyrail.Config) { cfg.HTTP.Token = token })
	address := "http://" + c.Nodes[0].HTTPAddr() + "/?token=" + token
	if err := chromedp.Run(ctx); err != nil { // it starts: tabs have one browser then
		t.Fatal(err)
	}
	frames := func(n int) chromedp.Action {
		return chromedp.PollFunction(fmt.Sprintf(`() => [...rails.values()].some((r) => r.samples.length >= %d)`, n), nil,
			chromedp.WithPollingInterval(50*time.Millisecond), chromedp.WithPollingTimeout(20*time.Second))
	}
	tabs := make([]context.Context, 8)
	for i := range tabs {
		tab, cancel := chromedp.NewContext(ctx)
		defer cancel()
		tabs[i] = tab
		if err := chromedp.Run(tab, chromedp.Navigate(address), frames(1)); err != nil {
			t.Fatalf("page %d: %v", i+1, err)
		}
	}
	if err := chromedp.Cancel(tabs[0]); err != nil { // the first one goes; the others stay live
		t.Fatal(err)
	}
	for i, tab := range tabs[1:] {
		if err := chromedp.Run(tab, chromedp.Evaluate(`for (const r of rails.values()) r.samples.length = 0`, nil), frames(1)); err != nil {
			t.Errorf("page %d: %v", i+2, err)
		}
	}
}

func TestLiveFramesAreBounded(t *testing.T) {
	s := newStage(64, "load")
	server := raise(t, "127.0.0.1:0", s)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	open := func() *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+server.Addr()+"/api/live", nil)
		if err != nil {
			t.Fatal(err)
		}
		a, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	var all []*http.Response
	for range 32 {
		a := open()
		if a.StatusCode != http.StatusOK {
			t.Fatalf("viewer %d: %d", len(all), a.StatusCode)
		}
		all = append(all, a)
	}
	a := open()
	a.Body.Close()
	if a.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a viewer beyond the limit: %d", a.StatusCode)
	}
	frame := make([]byte, 1<<20)
	n := 0
	for !bytes.Contains(frame[:n], []byte("\n\n")) {
		k, err := all[0].Body.Read(frame[n:])
		if err != nil {
			t.Fatal(err)
		}
		n += k
	}
	if !bytes.HasPrefix(frame, []byte("data: {\"Self\"")) || n > 128<<10 {
		t.Errorf("a frame of 64 nodes has %d bytes: %.80s", n, frame)
	}
	for _, a := range all {
		a.Body.Close()
	}
}
