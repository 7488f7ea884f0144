package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// object is what the manifest's objects have in common, and what is compared between them.
type object struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct{ Name string }
	Spec       struct {
		ClusterIP   string `yaml:"clusterIP"`
		ServiceName string `yaml:"serviceName"`
		Selector    any
		Ports       []struct{ Port int }
		Template    struct {
			Metadata struct{ Labels, Annotations map[string]string }
			Spec     struct {
				Containers []struct {
					Args  []string
					Ports []struct {
						Name          string
						ContainerPort int `yaml:"containerPort"`
					}
				}
			}
		}
	}
}

// TestTheManifestStartsANodeThatCanBe checks what no schema does: the objects of the Kubernetes
// manifest name each other, and the arguments are such that a node starts with them.
func TestTheManifestStartsANodeThatCanBe(t *testing.T) {
	text, err := os.ReadFile("packaging/kubernetes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	objects := make(map[string]object)
	for d := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var o object
		if err := d.Decode(&o); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if o.APIVersion == "" || o.Kind == "" || o.Metadata.Name == "" {
			t.Errorf("an object without version, kind or name: %+v", o)
		}
		objects[o.Kind+" "+o.Metadata.Name] = o
	}
	set, service := objects["StatefulSet polyrail"], objects["Service polyrail"]
	if set.Spec.ServiceName != "polyrail" || service.Spec.ClusterIP != "None" || len(set.Spec.Template.Spec.Containers) != 1 {
		t.Fatalf("the set or its headless service: %+v %+v", set, service)
	}
	networks := set.Spec.Template.Metadata.Annotations["k8s.v1.cni.cncf.io/networks"]
	for network := range strings.SplitSeq(networks, ", ") {
		if _, ok := objects["NetworkAttachmentDefinition "+network]; !ok {
			t.Errorf("there is no network %q", network)
		}
	}
	args := set.Spec.Template.Spec.Containers[0].Args
	cmd := newRoot()
	run, rest, err := cmd.Find(args)
	if err != nil || run.Name() != "run" {
		t.Fatalf("%v: %v", args, err)
	}
	for i := range rest {
		rest[i] = strings.NewReplacer("$(POD_NAME)", "polyrail-0", "$(POD_IP)", "10.0.0.1").Replace(rest[i])
	}
	if err := run.ParseFlags(rest); err != nil {
		t.Errorf("%v: %v", rest, err)
	}
}

// TestTheUnitVerifies has systemd look at the unit.
func TestTheUnitVerifies(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("SKIPPED: no systemd-analyze here")
	}
	out, _ := exec.CommandContext(t.Context(), analyze, "verify", "packaging/polyrail.service").CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "polyrail.service") && !strings.Contains(line, "is not executable") { // it isn't installed here
			t.Error(line)
		}
	}
}

func TestTheContainerfileEndsWithTheNode(t *testing.T) {
	text, err := os.ReadFile("packaging/Containerfile")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`(?m)^FROM scratch$`, `(?m)^USER \d+:\d+$`, `(?m)^ENTRYPOINT \["/node"\]$`, `(?m)^COPY --from=build /node /node$`} {
		if !regexp.MustCompile(want).Match(text) {
			t.Errorf("no line %s", want)
		}
	}
}
