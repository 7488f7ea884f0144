/*
 * A blocking collective call in C. Python's way into the library and back (_spec.py) takes some 2 µs
 * longer; it is what a package has that was installed without Python's headers. What is
 * unusual about a call, its errors above all, is left to it.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "polyrail.h"

static struct {
	int (*run)(polyrail_comm, const polyrail_operation *, polyrail_async *, polyrail_result *,
	           polyrail_error *);
	int (*cancel)(polyrail_work, polyrail_error *);
	int (*wait)(polyrail_work, int64_t, polyrail_result *, polyrail_error *);
	int64_t slice_ns;
} library;

/* The element type of a buffer, or 0; so for bools, whose sum is special. */
static int element(const Py_buffer *b)
{
	if (!b->format || !b->format[0] || b->format[1])
		return 0;
	if (strchr("bilqn", b->format[0]))
		return b->itemsize == 1 ? POLYRAIL_INT8 : b->itemsize == 4 ? POLYRAIL_INT32 :
		       b->itemsize == 8 ? POLYRAIL_INT64 : 0;
	if (strchr("BILQNc", b->format[0]))
		return b->itemsize == 1 ? POLYRAIL_UINT8 : b->itemsize == 4 ? POLYRAIL_UINT32 :
		       b->itemsize == 8 ? POLYRAIL_UINT64 : 0;
	if (strchr("efd", b->format[0]))
		return b->itemsize == 2 ? POLYRAIL_FLOAT16 : b->itemsize == 4 ? POLYRAIL_FLOAT32 :
		       b->itemsize == 8 ? POLYRAIL_FLOAT64 : 0;
	return 0;
}

/* Borrows the memory of obj, and reports whether it could and knows what the memory holds. */
static int borrow(PyObject *obj, int writable, Py_buffer *b, int *dtype)
{
	b->obj = NULL;
	if (obj == Py_None)
		return 1;
	if (PyObject_GetBuffer(obj, b, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0)) < 0) {
		PyErr_Clear();
		return 0;
	}
	int kind = element(b);
	if (!kind || (*dtype && kind != *dtype))
		return 0;
	*dtype = kind;
	return 1;
}

static int number(PyObject *obj, int32_t *n)
{
	long v = PyLong_AsLong(obj);
	*n = (int32_t)v;
	return *n == v;
}

static uint64_t length(const Py_buffer *b) { return b->obj ? (uint64_t)(b->len / b->itemsize) : 0; }

/* Makes the call, waits for its end, and returns None or the bytes of a polyrail_error. go_on waits
 * for a work whose first slice is over, or raises. */
static PyObject *make(PyObject *go_on, polyrail_comm comm, const polyrail_operation *operation)
{
	polyrail_async async = {0, 0, library.slice_ns, 0};
	polyrail_error error;
	int code;
	Py_BEGIN_ALLOW_THREADS
	code = library.run(comm, operation, &async, NULL, &error);
	Py_END_ALLOW_THREADS
	if (code == POLYRAIL_OK)
		Py_RETURN_NONE;
	if (code != POLYRAIL_PENDING)
		return PyBytes_FromStringAndSize((const char *)&error, sizeof error);
	PyObject *ended = PyObject_CallFunction(go_on, "K", (unsigned long long)async.work);
	if (!ended) { /* the memory must be free, also if a signal comes before go_on does anything */
		Py_BEGIN_ALLOW_THREADS
		library.cancel(async.work, NULL);
		library.wait(async.work, -1, NULL, NULL);
		Py_END_ALLOW_THREADS
	}
	return ended;
}

PyDoc_STRVAR(run_doc,
"run(go_on, communicator, kind, dst, src, op, root, *others): None, or the bytes of an error.\n"
"NotImplemented if any of others is not None, or a buffer is unusual: then nothing was done.");

static PyObject *run(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
	if (n < 7 || !library.run) {
		PyErr_SetString(PyExc_TypeError, "run takes seven arguments or more, and needs a library");
		return NULL;
	}
	for (Py_ssize_t i = 7; i < n; i++)
		if (args[i] != Py_None)
			Py_RETURN_NOTIMPLEMENTED;
	polyrail_comm comm = PyLong_AsUnsignedLongLong(args[1]);
	polyrail_operation o = {0};
	o.size = sizeof o;
	if (!number(args[2], &o.kind) || !o.kind /* a batch */ || !number(args[5], &o.op) ||
	    !number(args[6], &o.root) || PyErr_Occurred()) {
		PyErr_Clear();
		Py_RETURN_NOTIMPLEMENTED;
	}
	Py_buffer dst, src = {0};
	PyObject *ended = NULL;
	int dtype = 0;
	if (borrow(args[3], 1, &dst, &dtype) && borrow(args[4], 0, &src, &dtype)) {
		o.dtype = dtype;
		o.dst = dst.obj ? dst.buf : NULL;
		o.src = src.obj ? src.buf : NULL;
		o.dst_count = length(&dst);
		o.src_count = length(&src);
		ended = make(args[0], comm, &o);
	} else {
		ended = Py_NewRef(Py_NotImplemented);
	}
	PyBuffer_Release(&src);
	PyBuffer_Release(&dst);
	return ended;
}

PyDoc_STRVAR(bind_doc,
"bind(run, cancel, wait, slice_ns): the addresses of the library's functions, and how long a call\n"
"waits in it.");

static PyObject *bind(PyObject *module, PyObject *args)
{
	unsigned long long run, cancel, wait, slice;
	if (!PyArg_ParseTuple(args, "KKKK", &run, &cancel, &wait, &slice))
		return NULL;
	library.run = (void *)(uintptr_t)run;
	library.cancel = (void *)(uintptr_t)cancel;
	library.wait = (void *)(uintptr_t)wait;
	library.slice_ns = (int64_t)slice;
	Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
	{"run", (PyCFunction)(void (*)(void))run, METH_FASTCALL, run_doc},
	{"bind", bind, METH_VARARGS, bind_doc},
	{NULL},
};

static struct PyModuleDef definition = {
	PyModuleDef_HEAD_INIT, "polyrail._quick", "Blocking collective calls.", -1, methods,
};

PyMODINIT_FUNC PyInit__quick(void) { return PyModule_Create(&definition); }
