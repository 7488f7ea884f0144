package lint

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// NetworkAttachmentDefinition is Multus' type of a network, as its definition of the custom
// resource has it.
type NetworkAttachmentDefinition struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              struct {
		Config string `json:"config"`
	} `json:"spec"`
}

// DeepCopyObject implements runtime.Object.
func (n *NetworkAttachmentDefinition) DeepCopyObject() runtime.Object {
	c := *n
	n.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	return &c
}

// manifest lists what an API server would refuse, as far as types and names tell. Those are fields
// that a type does not have, or that stand twice, and values of another kind. They are also names,
// labels and ports out of their form.
func manifest(text []byte) (found []string) {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(schema.GroupVersion{Group: "k8s.cni.cncf.io", Version: "v1"}, &NetworkAttachmentDefinition{})
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return []string{err.Error()}
		}
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	objects := 0
	for documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))); ; objects++ {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return append(found, err.Error())
		}
		o, kind, err := decoder.Decode(document, nil, nil)
		if err != nil {
			found = append(found, err.Error())
			continue
		}
		for _, e := range object(o) {
			found = append(found, fmt.Sprintf("%s: %v", kind.Kind, e))
		}
	}
	if objects == 0 {
		found = append(found, "no object")
	}
	return found
}

// object lists what is wrong with one.
func object(o runtime.Object) (faults field.ErrorList) {
	root := field.NewPath("")
	meta := o.(metav1.Object)
	faults = append(faults, names(root.Child("metadata", "name"), meta.GetName(), validation.IsDNS1123Subdomain)...)
	faults = append(faults, metavalidation.ValidateLabels(meta.GetLabels(), root.Child("metadata", "labels"))...)
	spec := root.Child("spec")
	switch o := o.(type) {
	case *NetworkAttachmentDefinition:
		var config struct{ CNIVersion, Type string }
		if err := json.Unmarshal([]byte(o.Spec.Config), &config); err != nil || config.CNIVersion == "" || config.Type == "" {
			faults = append(faults, field.Invalid(spec.Child("config"), o.Spec.Config, "not a configuration of CNI"))
		}
	case *corev1.Service:
		faults = append(faults, names(root.Child("metadata", "name"), o.Name, validation.IsDNS1035Label)...)
		for i, p := range o.Spec.Ports {
			at := spec.Child("ports").Index(i)
			faults = append(faults, port(at, p.Name, p.Port, p.Protocol)...)
		}
	case *appsv1.StatefulSet:
		faults = append(faults, set(spec, &o.Spec)...)
	default:
		faults = append(faults, field.NotSupported(root.Child("kind"), fmt.Sprintf("%T", o), []string{"StatefulSet", "Service"}))
	}
	return faults
}

// set lists what is wrong with a StatefulSet: its selector must choose its template, and ports must
// differ.
func set(spec *field.Path, s *appsv1.StatefulSetSpec) (faults field.ErrorList) {
	chosen, err := metav1.LabelSelectorAsSelector(s.Selector)
	if err != nil || chosen.Empty() || !chosen.Matches(labels.Set(s.Template.Labels)) {
		faults = append(faults, field.Invalid(spec.Child("selector"), s.Selector, "does not choose the template"))
	}
	known := make(map[string]bool)
	for i := range s.Template.Spec.Containers {
		c := &s.Template.Spec.Containers[i]
		at := spec.Child("template", "spec", "containers").Index(i)
		faults = append(faults, names(at.Child("name"), c.Name, validation.IsDNS1123Label)...)
		if c.Image == "" {
			faults = append(faults, field.Required(at.Child("image"), ""))
		}
		for k, p := range c.Ports {
			if faults = append(faults, port(at.Child("ports").Index(k), p.Name, p.ContainerPort, p.Protocol)...); known[p.Name] {
				faults = append(faults, field.Duplicate(at.Child("ports").Index(k), p.Name))
			}
			known[p.Name] = true
		}
		for _, probe := range []*corev1.Probe{c.ReadinessProbe, c.LivenessProbe} {
			if probe != nil && probe.HTTPGet != nil && !known[probe.HTTPGet.Port.StrVal] {
				faults = append(faults, field.NotFound(at.Child("port of "+probe.HTTPGet.Path), probe.HTTPGet.Port.StrVal))
			}
		}
	}
	return faults
}

func port(at *field.Path, name string, number int32, protocol corev1.Protocol) (faults field.ErrorList) {
	faults = append(names(at.Child("name"), name, validation.IsValidPortName), names(at, int(number), validation.IsValidPortNum)...)
	if protocol != corev1.ProtocolTCP && protocol != corev1.ProtocolUDP {
		faults = append(faults, field.NotSupported(at.Child("protocol"), protocol, []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP}))
	}
	return faults
}

// names brings what a rule says into the form of faults.
func names[T any](at *field.Path, value T, rule func(T) []string) (faults field.ErrorList) {
	for _, why := range rule(value) {
		faults = append(faults, field.Invalid(at, value, why))
	}
	return faults
}
