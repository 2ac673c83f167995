package codec

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Fingerprint returns a text that two versions of a type share only if each can read what the other wrote, as far as
// types tell. all says that it is not known what the codec of the values sees; otherwise it is this package.
func Fingerprint(t reflect.Type, all bool) string {
	f := &fingerprint{all: all, seen: map[reflect.Type]int{}}
	f.add(t)
	return f.text.String()
}

type fingerprint struct {
	text strings.Builder
	// all says that it is not known what the codec sees. So everything counts: whole tags, hidden fields, and the
	// names of types. A type may have methods that the codec calls, and only its name tells cents from euros.
	all  bool
	seen map[reflect.Type]int
}

func (f *fingerprint) add(t reflect.Type) {
	if n, ok := f.seen[t]; ok { // a type that contains itself
		fmt.Fprintf(&f.text, "^%d", n)
		return
	}
	if named := t.Name() != "" && t.PkgPath() != ""; f.all && named {
		fmt.Fprintf(&f.text, "%s.%s ", t.PkgPath(), t.Name())
	} else if !f.all && EncodesItself(t) {
		fmt.Fprintf(&f.text, "%s.%s", t.PkgPath(), t) // the type does not show what its methods write
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

// addStruct records the fields with the names that the codec gives them. Their order counts
// too, because a struct may be encoded as an array.
func (f *fingerprint) addStruct(t reflect.Type) {
	f.text.WriteByte('{')
	for field := range t.Fields() {
		if !f.isStored(field) {
			continue
		}
		switch tag := field.Tag.Get("msgpack"); {
		case f.all:
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

// isStored reports whether the codec sees a field, or may see it.
func (f *fingerprint) isStored(field reflect.StructField) bool {
	switch {
	case f.all:
		return true
	case !field.IsExported() && !field.Anonymous:
		return field.Name == "_msgpack" // the options of the whole struct
	default:
		return isEncoded(field)
	}
}

// Unstorable says why values of a type do not come back from Unmarshal as they were. It returns ""
// if the type does not show a reason.
func Unstorable(t reflect.Type) string {
	if t.Kind() == reflect.Interface && t.NumMethod() == 0 {
		return fmt.Sprintf("T is %s, and a struct in it would come back as a map, an int as an int8", t)
	}
	return (&fingerprint{seen: map[reflect.Type]int{}}).unstorable(t, "T", addressed)
}

// place says whether the address of a value can be taken where it lies. In a map it can't.
type place int

const (
	addressed place = 1 << iota
	inMap
)

func (f *fingerprint) unstorable(t reflect.Type, path string, at place) string {
	if f.seen[t]&int(at) != 0 {
		return ""
	}
	f.seen[t] |= int(at)
	if t.Kind() != reflect.Pointer && (EncodesItself(t) || DecodesItself(t)) {
		if why := f.unstorableByMethods(t, path, at); why != "" || EncodesItself(t) {
			return why
		}
	}
	switch t.Kind() {
	case reflect.Chan, reflect.Func, reflect.UnsafePointer, reflect.Complex64, reflect.Complex128, reflect.Uintptr:
		return fmt.Sprintf("%s is a %s", path, t)
	case reflect.Interface:
		if t.NumMethod() > 0 {
			return fmt.Sprintf("%s is the interface %s, whose methods do not say which type to make", path, t)
		}
	case reflect.Pointer, reflect.Slice:
		return f.unstorable(t.Elem(), path, addressed)
	case reflect.Array:
		return f.unstorable(t.Elem(), path, at)
	case reflect.Map:
		if why := f.unstorable(t.Key(), "a key of "+path, inMap); why != "" {
			return why
		}
		return f.unstorable(t.Elem(), "a value of "+path, inMap)
	case reflect.Struct:
		stored := 0
		for field := range t.Fields() {
			if !f.isStored(field) {
				continue
			}
			stored++
			if field.Anonymous && !field.IsExported() && field.Type.Kind() != reflect.Struct {
				return fmt.Sprintf("%s.%s is embedded and not exported, so it can't be set", path, field.Name)
			}
			if why := f.unstorable(field.Type, path+"."+field.Name, at); why != "" {
				return why
			}
		}
		if path == "T" && stored == 0 && t.NumField() > 0 {
			return fmt.Sprintf("%s is %s, which has no exported field", path, t)
		}
	}
	return ""
}

// RunsMethods reports whether Unmarshal runs methods of users' types when it decodes a t. Those of
// the standard library are harmless.
func RunsMethods(t reflect.Type) bool { return ownMethodsBelow(t, map[reflect.Type]bool{}) }

func ownMethodsBelow(t reflect.Type, seen map[reflect.Type]bool) bool {
	if seen[t] || slices.Contains([]string{"time", "net", "net/netip", "net/url", "math/big"}, t.PkgPath()) {
		return false
	}
	seen[t] = true
	return DecodesItself(t) || slices.ContainsFunc(parts(t), func(part reflect.Type) bool { return ownMethodsBelow(part, seen) })
}

// parts returns the types that values of t consist of, or lead to.
func parts(t reflect.Type) (all []reflect.Type) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return []reflect.Type{t.Elem()}
	case reflect.Map:
		return []reflect.Type{t.Key(), t.Elem()}
	case reflect.Struct:
		for field := range t.Fields() {
			all = append(all, field.Type)
		}
	}
	return all
}
