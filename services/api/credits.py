"""Routes of credits: the documents that say who pays and what GPUs cost, balances, statements, and what operators ask."""

from fastapi import APIRouter

router = APIRouter(prefix="/v1/credits", tags=["credits"])
