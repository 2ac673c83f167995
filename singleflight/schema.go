package singleflight

import (
	"crypto/sha256"
	"encoding"
	"encoding/binary"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/vmihailenco/msgpack/v5"
)

// schemaOf returns the fingerprint of T as codec sees it. It is 0 if values are stored as they
// are, without a codec. Two versions of a type have the same fingerprint only if each can read
// what the other wrote. The fingerprint may differ although they can: that costs one load per
// version.
func schemaOf[T any](codec Codec) uint32 {
	t := reflect.TypeFor[T]()
	if codec == nil && isRaw(t) {
		return 0
	}
	f := &fingerprint{byTag: "msgpack", custom: msgpackMethods, seen: map[reflect.Type]int{}}
	if codec != nil {
		f.byTag = "" // it is not known which tags the codec reads, so all of them count
		f.custom = nil
		fmt.Fprintf(&f.text, "%T ", codec)
	}
	f.add(t)
	sum := sha256.Sum256([]byte(f.text.String()))
	return max(1, binary.BigEndian.Uint32(sum[:]))
}

// isRaw reports whether values of t are stored as they are if there is no codec.
func isRaw(t reflect.Type) bool {
	return t == reflect.TypeFor[[]byte]() || t == reflect.TypeFor[string]()
}

// msgpackMethods lists the interfaces with which a type encodes itself. The type does not show
// what such a method writes.
var msgpackMethods = []reflect.Type{
	reflect.TypeFor[msgpack.CustomEncoder](), reflect.TypeFor[msgpack.Marshaler](),
	reflect.TypeFor[encoding.BinaryMarshaler](), reflect.TypeFor[encoding.TextMarshaler](),
}

// fingerprint records what a codec sees of a type.
type fingerprint struct {
	text   strings.Builder
	byTag  string         // the tag that names fields; "": the whole tag counts
	custom []reflect.Type // types with these methods count by their name
	seen   map[reflect.Type]int
}

func (f *fingerprint) add(t reflect.Type) {
	if n, ok := f.seen[t]; ok { // a type that contains itself
		fmt.Fprintf(&f.text, "^%d", n)
		return
	}
	if f.encodesItself(t) {
		fmt.Fprintf(&f.text, "%s.%s", t.PkgPath(), t)
		return
	}
	if t.Name() != "" && t.PkgPath() != "" {
		f.seen[t] = len(f.seen)
	}
	switch t.Kind() {
	case reflect.Pointer:
		f.text.WriteByte('*')
		f.add(t.Elem())
	case reflect.Slice:
		f.text.WriteString("[]")
		f.add(t.Elem())
	case reflect.Array:
		fmt.Fprintf(&f.text, "[%d]", t.Len())
		f.add(t.Elem())
	case reflect.Map:
		f.text.WriteString("map[")
		f.add(t.Key())
		f.text.WriteByte(']')
		f.add(t.Elem())
	case reflect.Struct:
		f.addStruct(t)
	case reflect.Interface:
		fmt.Fprintf(&f.text, "interface %s.%s", t.PkgPath(), t)
	default:
		f.text.WriteString(t.Kind().String())
	}
}

// encodesItself reports whether t, or a pointer to it, has methods that encode it.
func (f *fingerprint) encodesItself(t reflect.Type) bool {
	if t.Kind() == reflect.Interface {
		return false
	}
	return slices.ContainsFunc(f.custom, func(methods reflect.Type) bool {
		return t.Implements(methods) || reflect.PointerTo(t).Implements(methods)
	})
}

// addStruct records the fields with the names that the codec gives them. Their order counts
// too, because a struct may be encoded as an array.
func (f *fingerprint) addStruct(t reflect.Type) {
	f.text.WriteByte('{')
	for i := range t.NumField() {
		field := t.Field(i)
		if !f.isStored(field) {
			continue
		}
		switch tag := field.Tag.Get(f.byTag); {
		case f.byTag == "":
			fmt.Fprintf(&f.text, "%s `%s` ", field.Name, field.Tag)
		case strings.HasPrefix(tag, ","), tag == "":
			fmt.Fprintf(&f.text, "%s%s ", field.Name, tag)
		default:
			f.text.WriteString(tag + " ")
		}
		if field.Anonymous {
			f.text.WriteString("embedded ")
		}
		f.add(field.Type)
		f.text.WriteByte(';')
	}
	f.text.WriteByte('}')
}

// isStored reports whether the codec sees a field.
func (f *fingerprint) isStored(field reflect.StructField) bool {
	if !field.IsExported() && !field.Anonymous {
		return f.byTag != "" && field.Name == "_msgpack" // the options of the whole struct
	}
	return f.byTag == "" || field.Tag.Get(f.byTag) != "-"
}

// unencodable says why no value of T can be stored without a custom codec. It returns "" if
// the type does not show a reason.
func unencodable[T any]() string {
	t := reflect.TypeFor[T]()
	if isRaw(t) {
		return ""
	}
	f := &fingerprint{byTag: "msgpack", custom: msgpackMethods, seen: map[reflect.Type]int{}}
	return f.unencodable(t, "T")
}

func (f *fingerprint) unencodable(t reflect.Type, path string) string {
	if _, ok := f.seen[t]; ok || f.encodesItself(t) {
		return ""
	}
	f.seen[t] = 0
	switch t.Kind() {
	case reflect.Chan, reflect.Func, reflect.UnsafePointer, reflect.Complex64, reflect.Complex128, reflect.Uintptr:
		return fmt.Sprintf("%s is a %s", path, t)
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return f.unencodable(t.Elem(), path)
	case reflect.Map:
		if why := f.unencodable(t.Key(), "a key of "+path); why != "" {
			return why
		}
		return f.unencodable(t.Elem(), "a value of "+path)
	case reflect.Struct:
		stored := 0
		for i := range t.NumField() {
			field := t.Field(i)
			if !f.isStored(field) {
				continue
			}
			stored++
			if why := f.unencodable(field.Type, path+"."+field.Name); why != "" {
				return why
			}
		}
		if path == "T" && stored == 0 && t.NumField() > 0 {
			return fmt.Sprintf("%s is %s, which has no exported field", path, t)
		}
	}
	return ""
}
