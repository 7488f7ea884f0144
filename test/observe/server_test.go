package observe

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/pprof/profile"

	"github.com/polyrail/polyrail"
)

const token = "0123456789abcdef"

func TestOnlyThoseWhoKnowTheTokenLook(t *testing.T) {
	c := watched(t, 1, 1, func(cfg *polyrail.Config) { cfg.HTTP.Token = token })
	node := c.Nodes[0]
	sum := sha256.Sum256([]byte(token))
	cookie := "polyrail_token_" + hex.EncodeToString(sum[:4])
	for _, x := range []struct {
		path   string
		header []string
		want   int
	}{
		{"/healthz", nil, 200},
		{"/readyz", nil, 200},
		{"/metrics", nil, 401},
		{"/api/status", nil, 401},
		{"/debug/pprof/heap", nil, 401},
		{"/debug/vars", nil, 401},
		{"/", nil, 401},
		{"/?token=wrong", nil, 401},
		{"/?token=" + token, nil, http.StatusSeeOther},
		{"/metrics", []string{"Authorization", "Bearer " + token}, 200},
		{"/metrics", []string{"Authorization", "Bearer " + token + "x"}, 401},
		{"/metrics", []string{"Authorization", "Bearer "}, 401},
		{"/metrics", []string{"Authorization", token}, 401},
		{"/metrics", []string{"Cookie", cookie + "=" + token}, 200},
		{"/metrics", []string{"Cookie", cookie + "="}, 401},
		{"/metrics", []string{"Host", "elsewhere.example", "Authorization", "Bearer " + token}, 200},
	} {
		if code, _ := get(t, node, x.path, x.header...); code != x.want {
			t.Errorf("GET %s with %q: %d, want %d", x.path, x.header, code, x.want)
		}
	}
}

func TestAnOpenAddressAnswersToItsOwnNameOnly(t *testing.T) {
	node := watched(t, 1, 1, nil).Nodes[0]
	for host, want := range map[string]int{"localhost:1": 200, "127.0.0.1": 200, "[::1]:80": 200, "elsewhere.example": 421, "": 200} {
		header := []string{"Host", host}
		if host == "" {
			header = nil
		}
		if code, _ := get(t, node, "/api/status", header...); code != want {
			t.Errorf("host %q: %d, want %d", host, code, want)
		}
	}
}

func TestNobodyChangesANode(t *testing.T) {
	node := watched(t, 1, 1, nil).Nodes[0]
	for _, path := range []string{"/", "/metrics", "/api/status", "/healthz", "/debug/pprof/heap"} {
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+node.HTTPAddr()+path, strings.NewReader("x"))
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		a.Body.Close()
		if a.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("POST %s: %d", path, a.StatusCode)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestReadinessNamesWhatIsMissing(t *testing.T) {
	c := watched(t, 1, 1, func(cfg *polyrail.Config) { cfg.Join = []string{"198.51.100.1:7946"} })
	code, text := get(t, c.Nodes[0], "/readyz")
	if code != http.StatusServiceUnavailable || !strings.Contains(text, "198.51.100.1:7946") {
		t.Errorf("%d %q, want the seed that doesn't answer", code, text)
	}
	if code, text = get(t, c.Nodes[0], "/healthz"); code != 200 || text != "ok\n" {
		t.Errorf("health: %d %q", code, text)
	}
}

func TestProfilesAreWhatPprofReads(t *testing.T) {
	node := watched(t, 1, 1, nil).Nodes[0]
	for _, path := range []string{"/debug/pprof/heap", "/debug/pprof/goroutine", "/debug/pprof/profile?seconds=0.05"} {
		code, body := get(t, node, path)
		if _, err := profile.ParseData([]byte(body)); code != 200 || err != nil {
			t.Errorf("%s: %d, %v", path, code, err)
		}
	}
	for path, want := range map[string]int{"/debug/pprof/none": 404, "/debug/pprof/profile?seconds=301": 400,
		"/debug/pprof/profile?seconds=NaN": 400, "/debug/pprof/": 200, "/debug/pprof/trace?seconds=0.01": 200} {
		if code, _ := get(t, node, path); code != want {
			t.Errorf("%s: %d, want %d", path, code, want)
		}
	}
	_, vars := get(t, node, "/debug/vars")
	if !json.Valid([]byte(vars)) || !strings.Contains(vars, "memstats") || strings.Contains(vars, "cmdline") {
		t.Errorf("expvar: %q", vars)
	}
}

func TestStatusIsTheNodesOwn(t *testing.T) {
	c := watched(t, 2, 2, nil)
	comms, err := c.Form(t.Context(), "train")
	if err != nil {
		t.Fatal(err)
	}
	reduce(t, c, comms, 30, 1<<20)
	var text string
	var s polyrail.NodeStatus
	// An operation is in flight until all that it sent is acknowledged, which its caller doesn't wait for.
	for inFlight := 1; inFlight > 0 && t.Context().Err() == nil; {
		_, text = get(t, c.Nodes[0], "/api/status")
		s = polyrail.NodeStatus{}
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			t.Fatal(err)
		}
		inFlight = 0
		for _, k := range s.Communicators {
			inFlight += k.InFlight
		}
	}
	if s.Node != "node0" || len(s.Members) != 2 || len(s.Rails) != 2 || len(s.Pairs) != 2 || !s.Pairs[0].Up || len(s.Communicators) != 1 {
		t.Fatalf("%s", text)
	}
	k := s.Communicators[0]
	if k.Name != "train" || k.Size != 2 || k.Seq < 31 || len(k.Classes) == 0 || k.Origin != "measured" ||
		k.Classes[0].Reason == "" || len(k.Classes[0].Shares) != 2 {
		t.Errorf("%+v", k)
	}
	sent := uint64(0)
	for _, r := range s.Rails {
		for _, l := range r.Lanes {
			sent += l.BytesSent
		}
	}
	if sent < 30<<20 {
		t.Errorf("%d bytes sent over all lanes", sent)
	}
	other, err := c.Nodes[1].Status(t.Context())
	// Who reads the JSON has the times of the wall alone: between them has to lie what has passed.
	if passed, shown := other.Time.Sub(other.Started), other.Time.Round(0).Sub(other.Started.Round(0)); passed != shown {
		t.Errorf("up for %v, and for %v by clocks that can be set", passed, shown)
	}
	if err != nil || other.Communicators[0].Origin != "decided by rank 0 (node node0)" || len(other.Communicators[0].Classes) == 0 {
		t.Errorf("%+v, %v", other.Communicators, err)
	}
}

func TestAddressesThatOthersReachNeedAToken(t *testing.T) {
	verified := &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert}
	for _, x := range []struct {
		http  polyrail.HTTP
		fault string
	}{
		{polyrail.HTTP{}, ""},
		{polyrail.HTTP{Addr: "127.0.0.1:0"}, ""},
		{polyrail.HTTP{Addr: "[::1]:80"}, ""},
		{polyrail.HTTP{Addr: "localhost:80"}, ""},
		{polyrail.HTTP{Addr: ":80"}, "needs a token"},
		{polyrail.HTTP{Addr: "0.0.0.0:80", Token: token}, ""},
		{polyrail.HTTP{Addr: "10.0.0.1:80"}, "needs a token"},
		{polyrail.HTTP{Addr: "10.0.0.1:80", TLS: &tls.Config{}}, "needs a token"},
		{polyrail.HTTP{Addr: "10.0.0.1:80", TLS: verified}, ""},
		{polyrail.HTTP{Addr: "10.0.0.1:80", Token: "short"}, "16 bytes"},
		{polyrail.HTTP{Addr: "10.0.0.1:80", Token: "a browser; 123456"}, "printable ASCII"},
		{polyrail.HTTP{Addr: "10.0.0.1:80", Token: token + "\n"}, "printable ASCII"},
		{polyrail.HTTP{Addr: "nonsense"}, "nonsense"},
		{polyrail.HTTP{Addr: "127.0.0.1:70000"}, "70000"},
		{polyrail.HTTP{Token: token}, ""}, // as POLYRAIL_HTTP_TOKEN, for node top
		{polyrail.HTTP{Sealed: true}, "without an address"},
		{polyrail.HTTP{Addr: "10.0.0.1:80", Sealed: true}, "of which there are none"},
	} {
		cfg := polyrail.DefaultConfig()
		cfg.Rails = []polyrail.Rail{{Name: "a", Protocol: "tcp", Device: "127.0.0.1"}}
		cfg.HTTP = x.http
		err := cfg.Validate()
		if (err != nil) != (x.fault != "") || err != nil && !strings.Contains(err.Error(), x.fault) {
			t.Errorf("%+v: %v, want %q", x.http, err, x.fault)
		}
	}
}

func TestATakenAddressFailsTheStart(t *testing.T) {
	first := watched(t, 1, 1, nil).Nodes[0]
	cfg := polyrail.DefaultConfig()
	cfg.Rails = []polyrail.Rail{{Name: "a", Protocol: "tcp", Device: "127.0.0.1"}}
	cfg.HTTP.Addr = first.HTTPAddr()
	node, err := polyrail.Start(t.Context(), cfg)
	if err == nil {
		_ = node.Close(context.Background())
	}
	if err == nil || !strings.Contains(err.Error(), first.HTTPAddr()) {
		t.Errorf("%v, want an error that names the address", err)
	}
}
