# SPDX-License-Identifier: Apache-2.0
"""Every row has the shape that readers of these files know: columns, what is quoted, what is N/A, and in Attr the keys in
their order. The shapes come from example rows of the original, one for each kind that the Ascend adapters give, with the names
that are settled otherwise: HOST_PINNED, and PTA_WORKSPACE for what the original calls PTA too. An access to memory that nobody
recorded has no allocation_id, where the original made up a block."""
import re

import pytest

import rows

EXAMPLES = '''\
10,MALLOC,HAL,N/A,1700000000000000010,4242,4242,0,0x0000120000000000,"{allocation_id:1,addr:0x0000120000000000,size:2097152,used:2097152,process_used:73400320,device_used:3221225472,page_type:normal,alloc_type:alloc}",,
11,MALLOC,HAL,N/A,1700000000000000011,4242,4242,0,0x0000120000400000,"{allocation_id:2,addr:0x0000120000400000,size:4194304,used:6291456,page_type:huge,alloc_type:create}",,
12,FREE,HAL,N/A,1700000000000000012,4242,4242,0,0x0000120000000000,"{allocation_id:1,addr:0x0000120000000000,size:2097152,used:4194304}",,
13,MALLOC,PTA,N/A,1700000000000000013,4242,4242,0,0x0000120010000200,"{allocation_id:3,addr:0x0000120010000200,size:512,used:512,total:20971520}",,
15,FREE,PTA,N/A,1700000000000000015,4242,4242,0,0x0000120010000200,"{allocation_id:3,addr:0x0000120010000200,size:512,used:1024,total:20971520}",,
13,MALLOC,PTA_WORKSPACE,N/A,1700000000000000013,4242,4242,0,0x0000120010000200,"{allocation_id:3,addr:0x0000120010000200,size:512,used:512,total:20971520}",,
15,FREE,PTA_WORKSPACE,N/A,1700000000000000015,4242,4242,0,0x0000120010000200,"{allocation_id:3,addr:0x0000120010000200,size:512,used:1024,total:20971520}",,
49,FREE,PTA_WORKSPACE,N/A,1700000000000000049,4242,4242,1,0x0000120021000000,"{allocation_id:9,addr:0x0000120021000000,size:256,shadow:true}",,
17,MALLOC,ATB,N/A,1700000000000000017,4242,4242,0,0x0000120020000000,"{allocation_id:5,addr:0x0000120020000000,size:4096,used:4096,total:1048576}",,
18,FREE,ATB,N/A,1700000000000000018,4242,4242,0,0x0000120020000000,"{allocation_id:5,addr:0x0000120020000000,size:4096,used:0,total:1048576}",,
19,MALLOC,MINDSPORE,N/A,1700000000000000019,4242,4242,0,0x0000120030000000,"{allocation_id:6,addr:0x0000120030000000,size:8192,used:8192,total:2097152}",,
20,FREE,MINDSPORE,N/A,1700000000000000020,4242,4242,0,0x0000120030000000,"{allocation_id:6,addr:0x0000120030000000,size:8192,used:0,total:2097152}",,
21,MALLOC,HOST_PINNED,N/A,1700000000000000021,4242,4242,cpu,0x00007f0000001000,"{allocation_id:7,addr:0x00007f0000001000,size:65536,pinned:true,used:65536,process_used:104857600}",,
23,FREE,HOST_PINNED,N/A,1700000000000000023,4242,4242,cpu,0x00007f0000001000,"{allocation_id:7,addr:0x00007f0000001000,size:65536,pinned:true,used:0,process_used:104792064}",,
31,KERNEL_LAUNCH,KERNEL_LAUNCH,MatMul_k1,1700000000000000031,4242,4242,0,N/A,"{streamId:2,taskId:17}",,
33,KERNEL_LAUNCH,KERNEL_EXECUTE_START,MatMul_k1,1700000000000000033,4242,4250,0,N/A,"{streamId:2,taskId:17}",,
34,KERNEL_LAUNCH,KERNEL_EXECUTE_END,MatMul_k1,1700000000000000034,4242,4250,0,N/A,"{streamId:2,taskId:17}",,
37,MSTX,Mark,"checkpoint",1700000000000000037,4242,4242,0,N/A,,,
38,MSTX,Range_start,"step start",1700000000000000038,4242,4242,0,N/A,,,
39,MSTX,Range_end,"Range end from id 1",1700000000000000039,4242,4242,0,N/A,,,
0,SYSTEM,ACL_INIT,N/A,1700000000000000000,4242,4242,N/A,N/A,,,
72,SYSTEM,ACL_FINI,N/A,1700000000000000072,4242,4242,N/A,N/A,,,
26,ACCESS,UNKNOWN,LinearOperation,1700000000000000026,4242,4242,0,0x0000120020000000,"{allocation_id:5,addr:0x0000120020000000,size:96,type:ATB,dtype:ACL_FLOAT16,format:ACL_FORMAT_ND,shape:[6,8,]}",,
52,ACCESS,WRITE,LinearOperation,1700000000000000052,4242,4242,0,0x0000120020000000,"{allocation_id:5,addr:0x0000120020000000,size:96,type:ATB,dtype:ACL_BF16,format:ACL_FORMAT_FRACTAL_NZ,shape:[3,4,4,]}",,
26,ACCESS,UNKNOWN,LinearOperation,1700000000000000026,4242,4242,0,0x0000120020000000,"{addr:0x0000120020000000,size:96,type:ATB,dtype:ACL_FLOAT16,format:ACL_FORMAT_ND,shape:[6,8,]}",,
52,ACCESS,WRITE,LinearOperation,1700000000000000052,4242,4242,0,0x0000120020000000,"{addr:0x0000120020000000,size:96,type:ATB,dtype:ACL_BF16,format:ACL_FORMAT_FRACTAL_NZ,shape:[3,4,4,]}",,
29,OP_LAUNCH,ATB_START,LinearOperation,1700000000000000029,4242,4242,0,N/A,"{path:0_4242/0/0_LinearOperation,workspace_ptr:0x120040000000,workspace_size:4096}",,
30,OP_LAUNCH,ATB_END,LinearOperation,1700000000000000030,4242,4242,0,N/A,"{path:0_4242/0/0_LinearOperation,workspace_ptr:0x120040000000,workspace_size:4096}",,
58,OP_LAUNCH,ATB_START,SelfAttention,1700000000000000058,4242,4242,0,N/A,"{path:0_4242/1/0_SelfAttention,workspace_ptr:0,workspace_size:0}",,
59,OP_LAUNCH,ATB_END,SelfAttention,1700000000000000059,4242,4242,0,N/A,"{path:0_4242/1/0_SelfAttention,workspace_ptr:0,workspace_size:0}",,
35,KERNEL_LAUNCH,KERNEL_START,0_AddKernel,1700000000000000035,4242,4242,0,N/A,"{path:0_4242/0/0_ElewiseOperation/0_AddKernel/before}",,
36,KERNEL_LAUNCH,KERNEL_END,0_AddKernel,1700000000000000036,4242,4242,0,N/A,"{path:0_4242/0/0_ElewiseOperation/0_AddKernel/after}",,
'''

# Left out where the driver's figures are not known; and `reserved`, of a block that goes back from a pool to the driver, is our own.
OPTIONAL = ("process_used", "device_used", "reserved")
ORDER = ("allocation_id addr size pinned used total process_used device_used reserved shadow owner inefficient_type page_type "
         "alloc_type type dtype format shape path workspace_ptr workspace_size").split()
FIELD = re.compile(r'("(?:[^"]|"")*"|[^",\n]*)([,\n])')


def lines(text):
    """The rows of a file as lists of raw fields, quotes and all."""
    found, line, at = [], [], 0
    while at < len(text):
        field = FIELD.match(text, at)
        assert field, f"neither quoted nor plain: {text[at:at + 80]!r}"
        line.append(field[1])
        at = field.end()
        if field[2] == "\n":
            found.append(line)
            line = []
    assert line == []
    return found


def kind(value):
    """What kind of value a raw field, or one in Attr, is."""
    if value in ("", "N/A", "cpu", "true"):
        return value
    if re.fullmatch(r"\d+", value):
        return "number"
    if re.fullmatch(r"0x[0-9a-f]{16}", value):
        return "address"
    return "quoted" if value[0] == '"' else "word"


def name_kind(event, value):
    """Marks are always quoted, other names only when they must be."""
    must = event != "MSTX" and re.search(r'[,"\n\r]', value[1:-1] if value[:1] == '"' else value)
    return "word" if must and value[0] == '"' else kind(value)


def attr_kinds(value):
    if value == "":
        return ()
    assert value[:2] == '"{' and value[-2:] == '}"', value
    # Values may hold commas, so a comma separates only when a key follows.
    pairs = [pair.split(":", 1) for pair in re.split(rf",(?=(?:{'|'.join(rows.ATTR_KEYS)}):)", value[2:-2])]
    known = [key for key, _ in pairs if key in ORDER]
    assert known == sorted(known, key=ORDER.index), value
    return tuple((key, kind(content)) for key, content in pairs if key not in OPTIONAL)


def shape(line):
    assert len(line) == 12, line
    ident, event, event_type, name, *middle, ptr, attr, python_stack, c_stack = line
    return (event, event_type, kind(ident), name_kind(event, name), tuple(map(kind, middle)), kind(ptr), attr_kinds(attr),
            kind(python_stack), kind(c_stack))


@pytest.fixture
def shapes(client, operators):
    """All shapes of the rows of everything that the adapters can see, with one line for each."""
    for name, *arguments in (["acl_train", "--threads=2", "--devices=2"], ["client_pta"], ["client_pta", "--expandable"],
                             ["client_workspace"], ["client_workspace", "--nested"], ["client_mindspore"], ["client_atb"],
                             ["client_mstx", "--memory"]):
        said = client(name, *arguments, options=["--level=kernel"])
    said = operators("atb_abi1", options=["--level=op,kernel", "--events=access,launch"])
    found = {}
    assert len(said.run.projects()) == 9
    for path in (path for project in said.run.projects() for path in project.dumps()):
        text = path.read_bytes().decode()
        assert text.startswith(rows.HEADER + "\n")
        for line in lines(text)[1:]:
            found.setdefault(shape(line), line)
    return found


def test_rows_have_the_shapes_that_readers_know(shapes):
    known = {shape(line) for line in lines(EXAMPLES)}
    # What has no device stands in every file; a mark may have none, and no message.
    for event, event_type, ident, name, (*numbers, device), *rest in list(known):
        if event == "MSTX":
            known |= {(event, event_type, ident, kind_of_name, (*numbers, where), *rest)
                      for kind_of_name in ("quoted", "N/A") for where in ("number", "N/A")}
    strange = {line_shape: line for line_shape, line in shapes.items() if line_shape not in known}
    assert not strange, "\n".join(",".join(line) for line in strange.values())
    assert {line_shape[:2] for line_shape in shapes} == {line_shape[:2] for line_shape in known}, "a kind without a row"


def test_every_kind_of_example_is_met(shapes):
    missing = [line for line in lines(EXAMPLES) if shape(line) not in shapes]
    assert not missing, "\n".join(map(",".join, missing))
