package codec

import (
	"cmp"
	"reflect"
	"strings"
	"sync"
)

// CheckDepth returns an error if the library would recurse too deep for v, because a stack
// overflow ends the process. It visits v only if its type can be that deep.
func CheckDepth(v any) error {
	if v == nil || IsShallow(reflect.TypeOf(v)) {
		return nil
	}
	return depth{}.check(reflect.ValueOf(v))
}

// depth says where in a value a part of it is.
type depth struct {
	nested int // how many arrays and maps enclose it
	links  int // how many pointers and interfaces lead to it from the innermost of these
}

func (d depth) check(v reflect.Value) error {
	if !v.IsValid() || IsShallow(v.Type()) {
		return nil
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface, reflect.Slice, reflect.Map:
		if v.IsNil() {
			return nil
		}
	}
	if v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		if d.links++; d.links > maxDepth {
			return errDeep
		}
		return d.check(v.Elem())
	}
	in := depth{nested: d.nested + 1}
	if in.nested > maxDepth {
		return errDeep
	}
	switch v.Kind() {
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if err := in.check(v.Index(i)); err != nil {
				return err
			}
		}
	case reflect.Map:
		for all := v.MapRange(); all.Next(); {
			if err := cmp.Or(in.check(all.Key()), in.check(all.Value())); err != nil {
				return err
			}
		}
	case reflect.Struct:
		for field, part := range v.Fields() {
			of := in
			switch {
			case !isEncoded(field):
				continue
			case field.Anonymous:
				of = d // its fields are encoded among those of v
				of.links++
			}
			if err := of.check(part); err != nil {
				return err
			}
		}
	}
	return nil
}

func isEncoded(field reflect.StructField) bool {
	name, _, _ := strings.Cut(field.Tag.Get("msgpack"), ",")
	return (field.IsExported() || field.Anonymous) && name != "-"
}

// shallow holds, by type, whether values of it cannot be deep.
var shallow sync.Map

// IsShallow reports whether the depth of a value of type t is bounded by the type.
func IsShallow(t reflect.Type) bool {
	if known, ok := shallow.Load(t); ok {
		return known.(bool)
	}
	is := isShallowBelow(t, map[reflect.Type]bool{})
	shallow.Store(t, is)
	return is
}

// isShallowBelow is IsShallow for a type within those in open.
func isShallowBelow(t reflect.Type, open map[reflect.Type]bool) bool {
	switch t.Kind() {
	case reflect.Interface:
		return false
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map, reflect.Struct:
	default:
		return true
	}
	if EncodesItself(t) {
		return true
	}
	if open[t] {
		return false
	}
	open[t] = true
	defer delete(open, t)
	if t.Kind() == reflect.Struct {
		for field := range t.Fields() {
			if isEncoded(field) && !isShallowBelow(field.Type, open) {
				return false
			}
		}
		return true
	}
	return isShallowBelow(t.Elem(), open) && (t.Kind() != reflect.Map || isShallowBelow(t.Key(), open))
}
