package lint

import (
	"os"
	"strings"
	"testing"
)

// read is a file of packaging/.
func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestTheManifestIsOneThatKubernetesReads(t *testing.T) {
	for _, fault := range manifest([]byte(read(t, "kubernetes.yaml"))) {
		t.Error(fault)
	}
}

func TestBuildKitHasNothingToSay(t *testing.T) {
	faults, err := containerfile(t.Context(), []byte(read(t, "Containerfile")))
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range faults {
		t.Error(fault)
	}
}

// TestFaultsOfTheManifestAreFound makes one mistake at a time.
func TestFaultsOfTheManifestAreFound(t *testing.T) {
	for _, c := range []struct{ right, wrong, say string }{
		{"replicas: 4", "replica: 4", `unknown field "spec.replica"`},
		{"replicas: 4", "replicas: four", "cannot unmarshal string"},
		{"replicas: 4", "replicas: 4\n  replicas: 5", `key "replicas" already set`},
		{"kind: StatefulSet", "kind: StatefullSet", "no kind"},
		{"limits: {memory: 4Gi}", "limits: {memory: 4GB}", "quantities must match"},
		{"name: gossip-udp, containerPort", "name: gossip_udp, containerPort", "must contain only"},
		{"port: 9321, protocol: TCP", "port: 93210, protocol: TCP", "must be between 1 and 65535"},
		{"port: 7946, protocol: UDP", "port: 7946, protocol: UPD", "Unsupported value"},
		{"path: /readyz, port: http", "path: /readyz, port: https", "Not found"},
		{"      labels: {app: polyrail}\n      annotations", "      labels: {app: rail}\n      annotations", "does not choose the template"},
		{`"type": "macvlan", "master": "eth1"`, `"typ": "macvlan", "master": "eth1"`, "not a configuration of CNI"},
		{"name: rail-a\nspec", "name: Rail_A\nspec", "RFC 1123"},
	} {
		text := read(t, "kubernetes.yaml")
		broken := strings.Replace(text, c.right, c.wrong, 1)
		if broken == text {
			t.Fatalf("the manifest has no %q", c.right)
		}
		if said := strings.Join(manifest([]byte(broken)), "\n"); !strings.Contains(said, c.say) {
			t.Errorf("%q: %q, want %q", c.wrong, said, c.say)
		}
	}
}

func TestFaultsOfTheContainerfileAreFound(t *testing.T) {
	for _, c := range []struct{ right, wrong, say string }{
		{"AS build", "as build", "FromAsCasing"},
		{"--from=build", "--form=build", "unknown flag"},
		{`ENTRYPOINT ["/node"]`, "ENTRYPOINT /node", "JSONArgsRecommended"},
		{"COPY --from=build /node /node", "COPYY --from=build /node /node", "unknown instruction"},
	} {
		text := read(t, "Containerfile")
		broken := strings.Replace(text, c.right, c.wrong, 1)
		if broken == text {
			t.Fatalf("the Containerfile has no %q", c.right)
		}
		faults, err := containerfile(t.Context(), []byte(broken))
		if err != nil {
			faults = append(faults, err.Error())
		}
		if said := strings.Join(faults, "\n"); !strings.Contains(said, c.say) {
			t.Errorf("%q: %q, want %q", c.wrong, said, c.say)
		}
	}
}
