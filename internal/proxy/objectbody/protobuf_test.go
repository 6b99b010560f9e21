package objectbody

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	kjson "sigs.k8s.io/json"
)

// codec is the client's codec for a media type.
func codec(t testing.TB, e Encoding) runtime.Serializer {
	t.Helper()
	factory := serializer.NewCodecFactory(scheme.Scheme)
	info, ok := runtime.SerializerInfoForMediaType(factory.SupportedMediaTypes(), string(e))
	if !ok {
		t.Fatalf("no serializer for %s", e)
	}
	return info.Serializer
}

func encode(t testing.TB, e Encoding, object runtime.Object) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := codec(t, e).Encode(object, &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func asProtobuf(t testing.TB, text string) []byte {
	t.Helper()
	var c corev1.ConfigMap
	if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &c); err != nil {
		t.Fatal(err)
	}
	return encode(t, Protobuf, &c)
}

func template() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i", Command: []string{"", "x"}}}},
	}
}

func objects() map[string]runtime.Object {
	n, controller := int32(3), true
	md := metav1.ObjectMeta{
		Name: "n", Namespace: "ns", UID: "u", Labels: map[string]string{"l": "m"}, Annotations: map[string]string{"a": "b"},
		CreationTimestamp: metav1.NewTime(time.Unix(1, 0)), Finalizers: []string{"f"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "u-2", Controller: &controller}},
		ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "m", FieldsV1: metav1.NewFieldsV1(`{"f:data":{}}`)}},
	}
	kind := func(apiVersion, kind string) metav1.TypeMeta {
		return metav1.TypeMeta{APIVersion: apiVersion, Kind: kind}
	}
	return map[string]runtime.Object{
		"deployment": &appsv1.Deployment{TypeMeta: kind("apps/v1", "Deployment"), ObjectMeta: md, Spec: appsv1.DeploymentSpec{Replicas: &n, Template: template()}},
		"bare":       &corev1.ConfigMap{TypeMeta: kind("v1", "ConfigMap")},
		"config map": &corev1.ConfigMap{TypeMeta: kind("v1", "ConfigMap"), ObjectMeta: md, Data: map[string]string{"k": "v"}, BinaryData: map[string][]byte{"b": {0, 255}}},
		"secret":     &corev1.Secret{TypeMeta: kind("v1", "Secret"), ObjectMeta: metav1.ObjectMeta{GenerateName: "g-"}, Data: map[string][]byte{"b": {0, 255}, "e": {}}},
		"cron job": &batchv1.CronJob{TypeMeta: kind("batch/v1", "CronJob"), ObjectMeta: md, Spec: batchv1.CronJobSpec{
			Schedule: "* * * * *", JobTemplate: batchv1.JobTemplateSpec{ObjectMeta: md, Spec: batchv1.JobSpec{Parallelism: &n, Template: template()}},
		}},
	}
}

func TestAdd_DecodesToTheObjectWithTheMark(t *testing.T) {
	for name, object := range objects() {
		for _, e := range []Encoding{JSON, YAML, Protobuf} {
			for kind, m := range marks() {
				body := encode(t, e, object)
				marked, err := e.Add(body, m, nil)
				if err != nil {
					t.Errorf("%s: %s: %v", name, e, err)
					continue
				}
				want, _, err := codec(t, e).Decode(body, nil, nil)
				if err != nil {
					t.Fatal(err)
				}
				got, _, err := codec(t, e).Decode(marked, nil, nil)
				if err != nil {
					t.Errorf("%s: %s: %v", name, e, err)
					continue
				}
				markObject(t, want, m)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s: %s: %s (-want +got):\n%s", name, e, kind, diff)
				}
				if again, err := e.Add(marked, m, nil); err != nil || !bytes.Equal(again, marked) {
					t.Errorf("%s: %s: %s: marked twice, %v", name, e, kind, err)
				}
			}
		}
	}
}

func markObject(t *testing.T, object runtime.Object, m Mark) {
	t.Helper()
	accessor, err := meta.Accessor(object)
	if err != nil {
		t.Fatal(err)
	}
	if m.Reference != nil {
		accessor.SetOwnerReferences(append(accessor.GetOwnerReferences(), *m.Reference))
		return
	}
	all := accessor.GetAnnotations()
	if all == nil {
		all = map[string]string{}
	}
	for k, v := range m.Annotations {
		all[k] = v
	}
	accessor.SetAnnotations(all)
}

func TestAddToProtobuf_KeepsEveryOtherByte(t *testing.T) {
	unknown := appendField(nil, 77, []byte("a newer API"))
	config := appendField(nil, objectMetadata, appendField(appendField(nil, 1, []byte("c")), 99, []byte("newer")))
	config = append(appendField(config, objectMetadata, appendField(nil, metaReferences, nil)), unknown...) // in two pieces
	before := appendField([]byte(magic), unknownRaw, []byte("an earlier one does not count"))
	body := append(appendField(bytes.Clone(before), unknownRaw, config), unknown...)
	for name, m := range marks() {
		marked, err := Protobuf.Add(body, m, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !checkAdded(t, Protobuf, body, marked, m, "") {
			t.Errorf("%s: nothing to compare", name)
		}
		p, err := decodeProtobuf(marked)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(marked, before) || !bytes.HasPrefix(p.raw(), config) || !bytes.HasSuffix(marked, unknown) {
			t.Errorf("%s: %q became %q", name, body, marked)
		}
	}
}
