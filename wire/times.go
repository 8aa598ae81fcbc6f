package wire

import (
	"errors"
	"reflect"
	"time"
)

// errTime says that a time cannot be kept: records are JSON, which has years of four digits, and encoding any other would panic.
var errTime = errors.New("a time is not of this era")

// checkTimes looks at all times in a value that was decoded.
func (c *Codec) checkTimes(v reflect.Value) error {
	if !c.timed(v.Type(), nil) {
		return nil
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			return c.checkTimes(v.Elem())
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if err := c.checkTimes(v.Index(i)); err != nil {
				return err
			}
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			if err := c.checkTimes(it.Value()); err != nil {
				return err
			}
		}
	case reflect.Struct:
		if t, ok := reflect.TypeAssert[time.Time](v); ok {
			_, offset := t.Zone()
			if y := t.UTC().Year(); y < 1 || y > 9998 || offset <= -24*60*60 || offset >= 24*60*60 {
				return errTime
			}
			return nil
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				if err := c.checkTimes(v.Field(i)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// timed reports whether a value of a type can hold a time. Most items are told often and hold none.
func (c *Codec) timed(t reflect.Type, within []reflect.Type) (has bool) {
	if known, ok := c.types.Load(t); ok {
		return known.(bool)
	}
	for _, outer := range within {
		if outer == t {
			return false // the outer one finds out
		}
	}
	within = append(within, t)
	switch t.Kind() {
	case reflect.Interface:
		has = true
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		has = c.timed(t.Elem(), within)
	case reflect.Struct:
		has = t == reflect.TypeFor[time.Time]()
		for i := 0; i < t.NumField() && !has; i++ {
			has = t.Field(i).IsExported() && c.timed(t.Field(i).Type, within)
		}
	}
	if has || len(within) == 1 { // else it may be part of a type that holds itself
		c.types.Store(t, has)
	}
	return has
}
